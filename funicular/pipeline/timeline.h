#pragma once
// Simulates a schedule: when each action runs, how long ranks are idle, and how much memory they need.

#include <vector>

#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// All times are in one unit, all memory in another. Each vector has one value per stage, or one value for all
/// stages. B takes the time of I and W together. Reductions take no time.
struct Costs {
  std::vector<double> forward{1}, input_gradient{1}, weight_gradient{1};
  /// Time of a message from rank to rank. Messages between two ranks in one direction are sequential; both ranks
  /// compute meanwhile.
  double message = 0;
  std::vector<double> update{0};             ///< updates in rows, as in asynchronous schedules
  std::vector<double> activation_memory{0};  ///< per micro-batch, from F to the end of B or W
  std::vector<double> weight_memory{0};      ///< per version of the weights
  std::vector<double> state_memory{0};       ///< gradients and optimiser state, once per stage
};

struct Span {
  int rank = 0;
  Action action;
  double start = 0, end = 0;
};

struct RankUse {
  double busy = 0;
  double bubble = 0;  ///< idle time within the makespan
  int peak_in_flight =
      0;  ///< the most (stage, micro-batch) pairs whose activations it holds, from F to the end of B or W
  int versions =
      1;  ///< the most versions of one stage's weights that it holds: versions in use, and the newest
  double peak_memory =
      0;  ///< the most memory at one time for activations, versions of weights and state, over all its stages
};

struct Timeline {
  double makespan = 0;
  std::vector<Span> spans;  ///< spans of F, B, I, W and of updates that take time; by start, then by rank
  std::vector<RankUse> ranks;
};

/// Simulates a schedule that pipeline/validity.h accepts. Each rank runs its row in order, and each action as soon as
/// its inputs are available. Sends and receives take a rank no time. The ranks of a stage wait for each other at a
/// reduction or update. Throws InputError for negative costs, and for a number of costs that is neither 1 nor the
/// number of stages. Also throws it for a deadlock, and names the circle of ranks.
Timeline simulate(const Schedule& schedule, const Costs& costs = {});

}  // namespace funicular::pipeline
