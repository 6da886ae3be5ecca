#pragma once
// The matrices of a rank's stages as its replicas divide them: gathered before they are computed with, gradients reduced
// behind each backward pass (ZeRO's stages 2 and 3 in pipelines).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/deferred_gradients.h"
#include "funicular/core/flat_layout.h"
#include "funicular/core/recompute.h"
#include "funicular/parallel/releasable.h"
#include "funicular/parallel/stages.h"
#include "funicular/pipeline/schedule.h"

namespace funicular::parallel {

/// Matrices that are gathered and reduced together.
struct StageUnit {
  /// In the unit's order, and where each begins in it.
  std::vector<std::pair<Parameter*, int64_t>> parameters{};
  std::vector<size_t> segments{};  ///< of this rank, which use them, ascending
  bool copied = false;  ///< a rank of another stage updates it; `begin` and `compact` are among such ones
  int64_t begin = 0, size = 0;        ///< in a flat tensor of all of this rank's units
  std::vector<comm::Shard> pieces{};  ///< of each replica, from `begin`
  comm::Shard own{};                  ///< this rank's
  int64_t compact = 0;                ///< where that begins in flat tensors of own pieces alone

  Releasable weights{};  ///< ZeRO's stage 3
  comm::Work gathering{};
  bool gathered = false;
  at::Tensor gradient{};  ///< of one micro-batch on one stage, or of what several I have left for a W
  bool reduced = false;   ///< in this pass

  at::Tensor whole_in(const at::Tensor& flat) const { return flat.narrow(0, begin, size); }
  at::Tensor piece_in(const at::Tensor& flat) const { return flat.narrow(0, begin + own.begin, own.size); }
  at::Tensor compact_in(const at::Tensor& pieces_of_units) const {
    return pieces_of_units.narrow(0, compact, own.size);
  }
};

/// Cuts each unit's elements between blocks of the layout, as equal as that allows, and lays out what this replica has:
/// fills in `begin`, `pieces`, `own` and `compact`. Gives the sizes of all units and of own pieces.
std::pair<int64_t, int64_t> divide_units(std::vector<StageUnit>& units, const FlatLayout& layout,
                                         int replicas, int replica);

/// What the replicas of a rank's stages exchange in its passes, and when. All of them go through the passes of the same
/// stages and micro-batches in one order, those without data too; within a pass the exchanges have an order that follows
/// from the stage and the recomputation alone, and each is started when the pass comes to it.
///
/// Where a schedule splits I from W, weights are gathered for I alone (a W needs none), and gradients are reduced in W
/// alone, which makes nearly all of them. What I makes at once (gradients of tables and of the loss's decoder, and what a
/// module of a user's computes) waits here for the next W of its stage: so each gradient travels once, as in other schedules.
class StageExchange {
 public:
  /// Where values and gradients of own pieces lie. Of copied units they are the exchange's own.
  struct Buffers {
    at::Tensor values;     ///< what is computed with, stage 3
    at::Tensor gradients;  ///< to which those of each pass are added
  };

  StageExchange() = default;
  /// `zero` is 2 or 3; the units must outlive it and stay where they are. `waits` counts the time of a wait.
  StageExchange(comm::Group replicas, int zero, std::vector<StageUnit>& own, std::vector<StageUnit>& copied,
                Buffers buffers, Buffers copies, std::function<void(const comm::Work&)> wait);

  /// Around a pass of one micro-batch on one stage: F (also for an evaluation), B, I or W. Without data nothing else is
  /// called in between.
  void begin_pass(const Stage& stage, pipeline::Kind kind, Recompute recompute, bool ends_model);
  void end_pass();
  /// In a W: makes the products that its I has put off, and lets go of each.
  void make_products(std::vector<DeferredGradients::Product>& products);

  /// Own pieces are gathered from these values from now on: another version of what Buffers::values held.
  void take_values(const at::Tensor& values) { buffers_.values = values; }

  // Of SegmentEvents.
  void before_forward(size_t segment);
  void after_forward(size_t segment);
  void before_backward(size_t segment);
  void after_backward(size_t segment);

  /// The most bytes that were held at a time of whole weights and of gradients that are not reduced yet.
  int64_t most_held() const { return most_held_; }

 private:
  struct Exchange {
    enum What {
      gather,  ///< weights
      reduce,  ///< gradients
      settle   ///< behind an I, in place of a reduction; nobody else takes part
    } what = gather;
    StageUnit* unit = nullptr;
    size_t segment = 0;  ///< whose pass it belongs to
  };

  const Buffers& of(const StageUnit& unit) const { return unit.copied ? copies_ : buffers_; }
  std::vector<StageUnit*> used_by(size_t segment) const;
  StageUnit* unit_of(const at::Tensor& weight) const;
  void plan_gathers(size_t begin, size_t end);
  void plan_reductions(const Stage& stage, size_t begin, size_t end);
  void plan_backward(const Stage& stage, Recompute recompute, bool ends_model);
  void start_next();
  void start_gather(StageUnit& unit);
  void start_reduction(StageUnit& unit);
  void ensure(size_t segment);
  void release(StageUnit& unit);
  void make_gradient(StageUnit& unit);
  void settle(StageUnit& unit);
  void take_reduced();
  void free_gradient(StageUnit& unit);
  void hold(int64_t bytes);

  comm::Group replicas_;
  int zero_ = 0;
  std::map<size_t, std::vector<StageUnit*>> users_;              ///< by segment
  std::map<const c10::TensorImpl*, StageUnit*> unit_of_weight_;  ///< by Parameter::compute
  Buffers buffers_, copies_;
  std::function<void(const comm::Work&)> wait_;
  std::vector<Exchange> plan_;
  size_t next_ = 0;  ///< in plan_
  pipeline::Kind kind_ = pipeline::Kind::forward;
  size_t last_segment_ = 0;  ///< of the pass
  StageUnit* reducing_ = nullptr;
  comm::Work reduction_;
  int64_t held_ = 0, most_held_ = 0;
};

}  // namespace funicular::parallel
