#pragma once
// What the ranks of a pipeline that updates weights while it is full do, and in which order.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "funicular/parallel/layout.h"
#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

/// The rows of an asynchronous schedule, by its name or of a file. By a name (pipeline::make_asynchronous) they are made for any
/// number of steps. A file's updates, which all have as many micro-batches, are the steps from one meeting on; after the last of
/// them the pipeline is empty, and the next step begins with the first again. An earlier meeting ends the rows behind its step.
class AsynchronousRows {
 public:
  /// `layout` is one that Layout::on gave. Throws InputError for a file that is no such schedule, and for stages or chunks that
  /// contradict it or its name. Of a file:
  /// - each rank has one stage, and forward and backward passes in the order of their micro-batches;
  /// - micro-batches belong to the same update on all ranks, in their order: to the first update behind their backward pass;
  /// - no micro-batch uses an older version than one before it on the same stage.
  explicit AsynchronousRows(const Layout& layout);

  const pipeline::Placement& placement() const { return placement_; }
  /// Into how many micro-batches a step is cut unless the caller says it.
  int64_t pieces() const;
  /// The most steps from one meeting to the next, at least 1.
  int64_t most_steps() const;
  /// Micro-batches of the rows of a step that has `passes`: those behind are gaps. Throws InputError if a file has fewer.
  int size_of(int passes) const;
  /// The schedule's name; of a file what changes with its rows, but not with its place.
  std::string name() const;
  /// Adds to the sizes of the steps since the meeting those of a few that are expected, of `planned` in all; of a file of all
  /// `planned`. Their rows tell which versions will be needed.
  void add_expected(std::vector<int>& sizes, int64_t planned) const;
  /// The rows of steps of these sizes, with messages.
  pipeline::Schedule of(const std::vector<int>& sizes) const;

 private:
  std::vector<int> replicas() const;

  Layout layout_;
  pipeline::Schedule file_;  ///< with messages; without rows: there is none
  int size_ = 0;             ///< micro-batches of each of its updates
  pipeline::Placement placement_;
};

}  // namespace funicular::parallel
