#pragma once
// The options of a second stage with other rotary positions: --rope-theta and --local-rope-theta, of pretrain.

#include <cstdint>
#include <optional>
#include <string>

#include "funicular/cli/arguments.h"
#include "funicular/model/pretrained.h"

namespace funicular::cli {

struct RotaryOptions {
  model::RotaryBases bases;

  void declare(Arguments& arguments);
  /// Gives the model the bases, if there are any, and positions for sequences of `max_length` (0: as many as
  /// it has). Logs the changes. Throws InputError for a model without such layers.
  void apply(model::Pretrained& pretrained, int64_t max_length) const;
  /// Returns what a resumed run must share; empty: no option is given.
  std::string identity() const;
};

}  // namespace funicular::cli
