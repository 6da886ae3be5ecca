#pragma once
// What happens around each segment's forward and backward pass, for strategies that gather and reduce by
// segment.

#include <cstddef>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// Strategies that gather by segment need a model whose every segment after the first that learns passes
/// gradients on to the one before it: a chain. Called with the segment's number. A backward pass is heard of
/// where gradients flow: not for segments before the first that learns; after_backward not for that one
/// itself, which ends with the pass as a whole.
class SegmentEvents {
 public:
  virtual ~SegmentEvents() = default;
  virtual void before_forward(size_t segment) = 0;
  virtual void after_forward(size_t segment) = 0;
  /// Before the first node of its backward pass; may come twice.
  virtual void before_backward(size_t segment) = 0;
  /// All gradients that the segment contributes have been added to its parameters.
  virtual void after_backward(size_t segment) = 0;
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
  std::vector<decltype(Segment::forward)> before_;
};

}  // namespace funicular::parallel
