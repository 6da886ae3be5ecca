#pragma once
// The known schedules, one row each. To add one, write a generator of a rank's row, and add its line to recipes.cpp.

#include <string>
#include <vector>

#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// The numbers that a rank's row depends on.
struct Shape {
  int ranks = 1, micro_batches = 1, chunks = 1;
};

/// The weights of a schedule that updates them while the pipeline is full.
struct StaleWeights {
  /// A step is one micro-batch by default; false: as many micro-batches as there are ranks.
  bool every_micro_batch = true;
  /// Returns the version that a micro-batch of update `batch` uses on a stage. The stage has made version `newest` by
  /// then. Version `first` was the newest on the first stage when the micro-batch began.
  int (*version)(int newest, int first, int batch) = nullptr;
  /// Returns how many updates old this version is while the pipeline is full. Each of `stages` stages has one rank;
  /// `behind` of them come after this one.
  int (*age)(int behind, int stages) = nullptr;
};

struct Recipe {
  std::string name, summary;
  int least_chunks = 1, most_chunks = 1;  ///< stages per rank; the least is the default
  bool replicates = false;                ///< stages may be on several ranks (make_replicated)
  /// Forward and backward passes of a rank, in their order.
  Row (*row)(const Shape& shape, int rank) = nullptr;
  const StaleWeights* stale = nullptr;  ///< null: a flush before every update

  bool asynchronous() const { return stale != nullptr; }
  /// Whether the number of stages per rank can be chosen.
  bool any_chunks() const { return most_chunks > least_chunks; }
};

/// All of them, in the order of help and docs.
const std::vector<Recipe>& recipes();
/// Null: none has this name.
const Recipe* find_recipe(const std::string& name);
/// Throws InputError that lists the names.
const Recipe& recipe_of(const std::string& name);
/// The names of the recipes that `wanted` accepts.
std::vector<std::string> recipe_names(bool (*wanted)(const Recipe&) = [](const Recipe&) { return true; });

}  // namespace funicular::pipeline
