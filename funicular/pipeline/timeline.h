#pragma once
// Costs of a schedule: when each action runs, how long ranks are idle, and how much they hold.

#include <vector>

#include "funicular/pipeline/schedule.h"

namespace funicular::pipeline {

/// Times in any one unit, memory in another. Costs by stage [stages], or one value for all stages. A B takes
/// an I and a W. Reductions take none.
struct Costs {
  std::vector<double> forward{1}, input_gradient{1}, weight_gradient{1};
  /// From rank to rank; messages between the same two ranks in the same direction go one after the other, meanwhile
  /// both compute.
  double message = 0;
  std::vector<double> update{0};  ///< of the updates that stand in rows, as asynchronous schedules have them
  std::vector<double> activation_memory{0};  ///< of a micro-batch, from F to the end of B or W
  std::vector<double> weight_memory{0};      ///< of one version of the weights
  std::vector<double> state_memory{0};  ///< of what a stage has once: gradients, and the optimiser's state
};

struct Span {
  int rank = 0;
  Action action;
  double start = 0, end = 0;
};

struct RankUse {
  double busy = 0;
  double bubble = 0;  ///< time in which it stands still, of the whole schedule's
  int peak_in_flight =
      0;  ///< most activations of one micro-batch on one stage that it holds, from F to the end of B or W
  int versions = 1;  ///< of the weights of one stage, most that it holds: those in use, and the newest
  double peak_memory =
      0;  ///< most of activations, versions of weights and state at one time, of all its stages
};

struct Timeline {
  double makespan = 0;
  std::vector<Span> spans;  ///< of F, B, I and W, and of updates that take time, by their start, then by rank
  std::vector<RankUse> ranks;
};

/// Simulates a schedule that pipeline/validity.h accepts. Each rank does its row in order, each action as
/// soon as its inputs are there. Receives and sends take a rank no time. The ranks of a stage wait for each
/// other at a reduction or update. Throws InputError for costs that are negative or not as many as stages,
/// and, naming the circle, where ranks wait for each other for ever.
Timeline simulate(const Schedule& schedule, const Costs& costs = {});

}  // namespace funicular::pipeline
