#pragma once
// The memory cost of a layout: the bytes of weights, gradients and optimiser state on each rank.

#include <cstdint>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/parallel/strategy.h"

namespace funicular::prove {

/// The bytes on one rank, each storage counted once. For several devices in one process, the sum over the devices.
struct HeldBytes {
  int64_t weights = 0;    ///< masters, buffers, and copies in the compute type
  int64_t gradients = 0;  ///< before the update, when all gradients exist
  int64_t state = 0;      ///< the optimiser's state
};

/// Collects HeldBytes while a layout trains.
class HeldBytesProbe {
 public:
  /// The model must outlive it.
  explicit HeldBytesProbe(const Model& model) : model_(model) {}
  /// Call it within StepSettings::inspect, before the update. Not collective.
  void look_at_gradients(parallel::Strategy& strategy);
  /// Call it after the update. Not collective.
  void look_at_weights(parallel::Strategy& strategy);
  /// Rank 0 writes the bytes of all ranks to `folder`. Collective.
  void write(const comm::Group& group, const fs::path& folder) const;

 private:
  const Model& model_;
  HeldBytes held_;
};

/// Reads the bytes of each rank that HeldBytesProbe wrote; empty without a file (for the reference).
std::vector<HeldBytes> read_held_bytes(const fs::path& folder);
OrderedJson to_json(const std::vector<HeldBytes>& ranks);

}  // namespace funicular::prove
