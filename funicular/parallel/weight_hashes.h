#pragma once
// Whether ranks that should have the same weights do.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// A line for each weight that is here: its hash and name. `compared`: of these alone; empty: of all.
std::string hashes_of_weights(const Model& model, const std::function<bool(const Parameter&)>& compared = {});

struct DifferingWeight {
  int rank = 0;
  std::string name;
};

/// The first rank whose lines differ from the lines of rank 0, and the first weight that differs.
std::optional<DifferingWeight> find_differing_weight(const std::vector<std::string>& hashes_by_rank);

}  // namespace funicular::parallel
