#pragma once
// The pairs of layouts that funicular prove --all compares.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/prove/proof.h"

namespace funicular::prove {

/// The objectives that prove/proof.h lists.
const std::vector<std::string>& objective_names();
/// `name` is one of objective_names().
void set_objective(ProofTask& task, const std::string& name);

/// Two layouts, and the settings in which their task differs from the given one.
struct Pair {
  std::string objective;
  int64_t layers = 0, batch_size = 0;
  std::string a, b;

  bool operator==(const Pair&) const = default;
};

/// All pairs that fit `task`: the reference, every strategy on up to four ranks, and every pipeline schedule.
/// Schedules run on 2, 3 and 4 ranks with 1 to 8 micro-batches. On 2 ranks they also run with tensor parallelism, and
/// with replicas under ZeRO stages 0 to 3. If the task's model and data allow it, pairs cover further objectives
/// besides `objective`.
std::vector<Pair> all_pairs(const ProofTask& task, const std::string& objective);

}  // namespace funicular::prove
