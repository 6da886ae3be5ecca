#pragma once
// What happens around each segment's forward and backward pass, for strategies that gather and reduce by
// segment.

#include <cstddef>
#include <optional>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// Called with the segment's number. A backward pass goes through the segments that learn in the reverse of their
/// order. They need not be one chain: of two models one behind the other, where the second reads nothing that
/// the first one's gradients pass through, the second one's pass comes first. A backward pass is heard of where
/// gradients flow: not for segments before the first that learns, not for frozen ones; after_backward not for
/// the first that learns, which ends with the pass as a whole. Strategies that gather by segment need every
/// segment that learns to have a part in the loss.
class SegmentEvents {
 public:
  virtual ~SegmentEvents() = default;
  virtual void before_forward(size_t /*segment*/) {}
  virtual void after_forward(size_t /*segment*/) {}
  /// Before the first node of its backward pass; may come twice.
  virtual void before_backward(size_t /*segment*/) {}
  /// All gradients that the segment contributes have been added to its parameters.
  virtual void after_backward(size_t /*segment*/) {}
};

/// Puts together which segment's backward pass begins and ends when.
class BackwardOrder {
 public:
  explicit BackwardOrder(SegmentEvents& events) : events_(events) {}
  /// Gradients have come to the end of a segment: those behind it are done.
  void begin(size_t segment);
  /// Gradients have come to the beginning of a segment.
  void end(size_t segment);

 private:
  SegmentEvents& events_;
  std::optional<size_t> open_;  ///< begun and not known to be done
};

/// While it lives, the segments' functions call `events`; both must outlive it.
///
/// The graph gets nodes at the segments' borders. Autograd runs nodes that are ready in the reverse order of
/// their making (on the CPU, by the thread that called backward()), so a border's node runs when the segment
/// behind it is done; also within a recomputed group (core/recompute.h).
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
