#pragma once
// The bytes of weights, gradients and optimiser state that each rank of a layout holds: the price of a layout, beside the
// proof that it trains alike.

#include <cstdint>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/parallel/strategy.h"

namespace funicular::prove {

/// Of one rank, each storage once; of several devices in one process those of all.
struct HeldBytes {
  int64_t weights = 0;    ///< masters, buffers, and copies in the type that is computed with
  int64_t gradients = 0;  ///< before the update, when all are there
  int64_t state = 0;      ///< the optimiser's
};

/// Collects them while a layout trains.
class HeldBytesProbe {
 public:
  /// The model must outlive it.
  explicit HeldBytesProbe(const Model& model) : model_(model) {}
  /// Within StepSettings::inspect, before the update. Not collective.
  void look_at_gradients(parallel::Strategy& strategy);
  /// After the update. Not collective.
  void look_at_weights(parallel::Strategy& strategy);
  /// Rank 0 writes those of all ranks into `folder`. Collective.
  void write(const comm::Group& group, const fs::path& folder) const;

 private:
  const Model& model_;
  HeldBytes held_;
};

/// Of each rank, as HeldBytesProbe has written them; empty where nothing was written (the reference).
std::vector<HeldBytes> read_held_bytes(const fs::path& folder);
OrderedJson to_json(const std::vector<HeldBytes>& ranks);

}  // namespace funicular::prove
