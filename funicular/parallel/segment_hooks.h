#pragma once
// Events around each segment's forward and backward pass, for strategies that gather and reduce by segment.

#include <cstddef>
#include <optional>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// Each event gets the segment's number. A backward pass visits the segments that learn in reverse order. They need not
/// be one chain. If a second model reads nothing that the first one's gradients pass through, its backward pass still
/// comes first.
///
/// Backward events come only where gradients flow: not for segments before the first that learns, and not for frozen
/// ones. The first segment that learns gets no after_backward; it ends with the pass as a whole. Strategies that gather
/// by segment need every segment that learns to have a part in the loss.
class SegmentEvents {
 public:
  virtual ~SegmentEvents() = default;
  virtual void before_forward(size_t /*segment*/) {}
  virtual void after_forward(size_t /*segment*/) {}
  /// Called before the first node of its backward pass; may be called twice.
  virtual void before_backward(size_t /*segment*/) {}
  /// Called when all gradients from the segment have been added to its parameters.
  virtual void after_backward(size_t /*segment*/) {}
};

/// Derives when each segment's backward pass begins and ends.
class BackwardOrder {
 public:
  explicit BackwardOrder(SegmentEvents& events) : events_(events) {}
  /// Gradients have reached the end of a segment, so the segments behind it are done.
  void begin(size_t segment);
  /// Gradients have reached the beginning of a segment.
  void end(size_t segment);

 private:
  SegmentEvents& events_;
  std::optional<size_t> open_;  ///< begun and not known to be done
};

/// During its lifetime, the segments' functions call `events`. The model and `events` must outlive it.
///
/// The graph gets nodes at the segments' borders. Autograd runs ready nodes in the reverse order of their creation (on
/// the CPU, in the thread that called backward()). So a border's node runs when the segment behind it is done, also
/// within a recomputed group (core/recompute.h).
class SegmentHooks {
 public:
  SegmentHooks(Model& model, SegmentEvents& events);
  ~SegmentHooks();
  SegmentHooks(const SegmentHooks&) = delete;
  SegmentHooks& operator=(const SegmentHooks&) = delete;

 private:
  Model& model_;
  BackwardOrder order_;
  std::vector<decltype(Segment::forward)> before_;
};

}  // namespace funicular::parallel
