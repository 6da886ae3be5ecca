#pragma once
// Exchanges units of matrices whose weights or gradients the ranks divide. Weights are gathered before they are used,
// and gradients are reduced after each backward pass. Used by ZeRO's stages 2 and 3, and by stage 1's overlapped
// reductions.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/core/deferred_gradients.h"
#include "funicular/core/recompute.h"
#include "funicular/parallel/holding/exchange_plan.h"
#include "funicular/parallel/holding/holding.h"

namespace funicular::parallel {

/// Decides what the ranks exchange in their passes, and when. All ranks, with or without data, go through the same
/// passes in the same order. The order of exchanges within a pass follows from the pass alone, and each starts when the
/// pass reaches it. While one segment is computed, the weights of the next are gathered, and the gradients of the
/// previous one are reduced. At most two neighbouring segments have whole weights at a time; if a group is recomputed,
/// the whole group has.
///
/// Some schedules split backward passes into I (inputs) and W (weights). Then weights are gathered only for I, because
/// W needs none, and gradients are reduced only in W, which makes nearly all of them. I itself makes the gradients of
/// tables and of the loss's decoder, and all gradients that a user's module computes. These wait here for the next W of
/// the stage, so that each gradient is sent once, as in other schedules.
class UnitExchange {
 public:
  /// `holdings` must outlive it. `wait` waits for a Work and counts the time.
  UnitExchange(comm::Group ranks, const std::vector<Holding*>& holdings,
               std::function<void(const comm::Work&)> wait);

  /// Begins a pass. A pass without data then calls only run_without_data(), before end_pass().
  void begin_pass(const ExchangedPass& pass);
  void run_without_data();
  void end_pass();
  /// In a W pass: makes the products that its I pass has deferred, and releases each one.
  void make_products(std::vector<DeferredGradients::Product>& products);

  /// From now on, gathers the matrices of `holding` from these pieces, for example an older version.
  void gather_from(const Holding& holding, const at::Tensor& pieces);

  // Called by the SegmentEvents with these names.
  void before_forward(size_t segment);
  void after_forward(size_t segment);
  void before_backward(size_t segment);
  void after_backward(size_t segment);

  /// Waits for the reductions of gradients that stay whole.
  void wait_for_reductions();
  /// The largest number of bytes held at once for whole weights and for gradients that are not reduced yet.
  int64_t most_held() const { return most_held_; }

 private:
  /// A unit of matrices in its holding.
  struct Matrices {
    const Holding* holding = nullptr;
    WeightUnit* unit = nullptr;
    at::Tensor pieces{};  ///< own pieces of weights, from which they are gathered

    Divided divided() const { return holding->divided(ParameterKind::matrix); }
    /// The buffer to which reduced gradients are added, or in which gradients are reduced.
    const at::Tensor& gradients() const { return holding->gradients(ParameterKind::matrix); }
  };
  Matrices* matrices_with(const at::Tensor& weight) const;
  /// The visit of a segment's forward pass; kNowhere without a pass, or if the pass does not come there.
  size_t forward_visit(size_t segment) const;
  void start_next();
  void start_gathers(size_t visit);
  void start_reductions(size_t visit);
  void enter(size_t visit, size_t segment);
  void leave(size_t visit);
  void gather(Matrices& matrices);
  void release(Matrices& matrices);
  void make_gradient(Matrices& matrices);
  void reduce(Matrices& matrices);
  void settle(Matrices& matrices);
  void take_reduced();
  void free_gradient(Matrices& matrices);
  void hold(int64_t bytes);

  comm::Group ranks_;
  std::function<void(const comm::Work&)> wait_;
  std::vector<Matrices> matrices_;
  std::vector<const WeightUnit*> vectors_;
  ExchangedUnits units_;                                         ///< with the indices of matrices_
  std::map<const c10::TensorImpl*, Matrices*> owner_of_weight_;  ///< by Parameter::compute
  ExchangedPass pass_;
  bool in_backward_ = false;
  ExchangePlan plan_;
  size_t next_ = 0;  ///< the next of the plan's exchanges
  Matrices* reducing_ = nullptr;
  comm::Work reduction_;
  std::vector<comm::Work> reductions_;  ///< of gradients that stay whole
  int64_t held_ = 0, most_held_ = 0;    ///< bytes
};

}  // namespace funicular::parallel
