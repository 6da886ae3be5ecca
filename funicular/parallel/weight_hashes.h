#pragma once
// Finds out whether ranks that should have the same weights do.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// One line with hash and name for each weight on this rank. `compared`: chooses the weights; empty: all.
std::string hashes_of_weights(const Model& model, const std::function<bool(const Parameter&)>& compared = {});

struct DifferingWeight {
  int rank = 0;
  std::string name;
};

/// Returns the first rank whose lines differ from rank 0's, and the first weight that differs; nothing if all are
/// equal.
std::optional<DifferingWeight> find_differing_weight(const std::vector<std::string>& hashes_by_rank);

}  // namespace funicular::parallel
