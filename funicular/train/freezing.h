#pragma once
// Which parameters of a model learn in a run.

#include <string>
#include <utility>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::train {

/// For its lifetime, only parameters whose names begin with a prefix in `trainable` (empty: all that learn
/// anyway) and with none in `frozen` learn. Weights that learnt before learn again afterwards.
class Freezing {
 public:
  /// Throws InputError for a prefix that fits no parameter, with the nearest name.
  Freezing(Model& model, const std::vector<std::string>& trainable, const std::vector<std::string>& frozen);
  ~Freezing();
  Freezing(const Freezing&) = delete;
  Freezing& operator=(const Freezing&) = delete;

 private:
  std::vector<std::pair<Parameter*, bool>> before_;
};

}  // namespace funicular::train
