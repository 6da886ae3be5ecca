#pragma once
// The steps of a pipeline that is not emptied between them, and the progress of a rank.

#include <cstddef>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "funicular/parallel/stage_passes.h"
#include "funicular/parallel/strategy.h"
#include "funicular/parallel/term_sums.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

/// The steps since the last meeting. Their micro-batches are numbered consecutively.
class PipelinedSteps {
 public:
  struct Step {
    std::vector<MicroBatch> batches;  ///< until this rank has made the step's update
    Counts counts;
    StepSettings settings;
    int size = 1;    ///< micro-batches of the schedule, gaps included
    int passes = 0;  ///< most micro-batches of any replica; all replicas share one schedule and its versions
    int begin = 0;   ///< its first micro-batch
    TermSums sums{};
  };

  /// Appends a step, and sets its `begin`. The step keeps its place in memory.
  Step& add(Step step);
  void clear() { steps_.clear(); }
  bool empty() const { return steps_.empty(); }
  int count() const { return static_cast<int>(steps_.size()); }
  /// The micro-batches of all steps, gaps included.
  int micro_batches() const { return steps_.empty() ? 0 : steps_.back().begin + steps_.back().size; }
  /// Step::size of each.
  std::vector<int> sizes() const;
  Step& at(int number) { return steps_[static_cast<size_t>(number)]; }
  Step& newest() { return steps_.back(); }
  /// The step of a micro-batch.
  Step& of(int micro_batch);
  /// Whether any replica has data for the micro-batch, and whether this one does.
  bool is_anywhere(int micro_batch);
  bool is_here(int micro_batch);
  StageInput input(int micro_batch);

 private:
  std::deque<Step> steps_;
};

/// How far a rank is in its row, which grows with the steps.
class RowProgress {
 public:
  /// Calls `run` with the next places of the row that can run with so many micro-batches and steps. Stops at the first
  /// pass or update that needs more of them. Puts off receives that need more, because the shapes are not known yet.
  void advance(const pipeline::Row& row, int micro_batches, int steps,
               const std::function<void(size_t place)>& run);

 private:
  int available_ = 0;  ///< micro-batches available at the last call
  size_t done_ = 0;    ///< actions run so far, by which it finds its place in a row that has grown
};

}  // namespace funicular::parallel
