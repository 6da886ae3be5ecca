#pragma once
// The rows of an asynchronous schedule, which updates weights while the pipeline is full.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "funicular/parallel/layout.h"
#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

/// The rows of an asynchronous schedule, given by its name or as a file. With a name, they are generated for any number
/// of steps (pipeline::make_asynchronous). A file holds a fixed number of updates, all with the same number of
/// micro-batches: the steps from one meeting on. After its last update the pipeline is empty, and the next step begins
/// with the file's first update again. A meeting before the end of the file cuts the rows behind its step.
class AsynchronousRows {
 public:
  /// `layout` comes from Layout::on. Throws InputError for a file that is not such a schedule, and for stages or chunks
  /// that contradict the file or the schedule's name. A file must obey these rules.
  /// - Each rank has one stage, and runs its forward and its backward passes in the order of the micro-batches.
  /// - A micro-batch belongs to the first update after its backward pass, which must be the same update on all ranks.
  /// - Updates take the micro-batches in their order.
  /// - No micro-batch uses an older version than an earlier micro-batch on the same stage.
  explicit AsynchronousRows(const Layout& layout);

  const pipeline::Placement& placement() const { return placement_; }
  /// The default number of micro-batches per step.
  int64_t pieces() const;
  /// The largest number of steps from one meeting to the next, at least 1.
  int64_t most_steps() const;
  /// Returns the number of micro-batches in the rows of a step whose replicas have at most `passes` with data; the rest
  /// are gaps. Throws InputError if the updates of a file have fewer.
  int size_of(int passes) const;
  /// The schedule's name. For a file, a text with a hash of its rows, independent of its path.
  std::string name() const;
  /// Appends the sizes of a few expected steps to `sizes`, which holds the steps since the meeting; at most `planned`
  /// in all. With a file, appends all steps up to `planned`. The rows of expected steps tell which versions will be
  /// needed.
  void add_expected(std::vector<int>& sizes, int64_t planned) const;
  /// The rows of steps of these sizes, with messages.
  pipeline::Schedule of(const std::vector<int>& sizes) const;

 private:
  std::vector<int> replicas() const;

  Layout layout_;
  pipeline::Schedule file_;  ///< with messages; without rows if the schedule has a name
  int size_ = 0;             ///< micro-batches in each update of the file; 0 without a file
  pipeline::Placement placement_;
};

}  // namespace funicular::parallel
