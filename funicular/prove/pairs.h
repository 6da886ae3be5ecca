#pragma once
// The pairs of layouts that funicular prove --all compares.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/prove/proof.h"

namespace funicular::prove {

/// The names that prove/proof.h lists.
const std::vector<std::string>& objective_names();
/// `name` is one of objective_names().
void set_objective(ProofTask& task, const std::string& name);

/// Two layouts, and what is different in the task that they train.
struct Pair {
  std::string objective;
  int64_t layers = 0, batch_size = 0;
  std::string a, b;

  bool operator==(const Pair&) const = default;
};

/// The reference, every strategy on up to four ranks, and every schedule on 2, 3 and 4 ranks with 1 to 8 micro-batches, on 2 with
/// slices and beside replicas with ZeRO's stages 0 to 3, as far as they fit `task`, for `objective` and, where the
/// task's model and data allow it, for others.
std::vector<Pair> all_pairs(const ProofTask& task, const std::string& objective);

}  // namespace funicular::prove
