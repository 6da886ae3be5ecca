#pragma once
// Which processors the ranks of one host compute on.

#include <optional>
#include <span>
#include <vector>

namespace funicular::launch {

/// One logical processor, as the system numbers it. Processors of equal package and core share one core.
struct Processor {
  int id = 0, package = 0, core = 0;
};

/// The processors that this process may use, neighbours (same core, then same package) side by side.
std::vector<Processor> available_processors();

/// The share of one rank.
struct ProcessorShare {
  std::vector<int> ids;  ///< empty: there are fewer cores than ranks, and the ranks share them all
  int threads = 1;       ///< cores of the share, at least 1; the same for all ranks
};

/// Cuts the processors into `ranks` (at least 1) disjoint shares of equally many whole cores. Cores that do not divide
/// evenly are left over, because ranks with unequal threads would wait for each other. Each rank has its part of the
/// `quota` of processors that base/processor_limit.h reads. It has no more threads than this part, rounded up.
std::vector<ProcessorShare> divide_processors(std::span<const Processor> processors, int ranks,
                                              std::optional<double> quota);

}  // namespace funicular::launch
