#pragma once
// Units of matrices whose weights or gradients the ranks divide: gathered before they are computed with, reduced
// behind each backward pass (ZeRO's stages 2 and 3, and the overlapped reductions of its stage 1).

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

/// What the ranks exchange in their passes, and when. All of them go through the same passes in one order, those
/// without data too. Within a pass the exchanges have an order that follows from the pass alone, and each is started
/// when the pass comes to it: the weights of the next segment are gathered while this one is computed, and so are the
/// gradients of the one before reduced. Weights of at most two neighbours are whole at a time (of a group that is
/// computed again, the group's).
///
/// Where a schedule splits I from W, weights are gathered for I alone (a W needs none), and gradients are reduced in
/// W alone, which makes nearly all of them. What I makes at once (gradients of tables and of the loss's decoder, and
/// what a module of a user's computes) waits here for the next W of its stage: so each gradient travels once, as in
/// other schedules.
class UnitExchange {
 public:
  /// `holdings` must outlive it. `wait` counts the time of a wait.
  UnitExchange(comm::Group ranks, const std::vector<Holding*>& holdings,
               std::function<void(const comm::Work&)> wait);

  /// Without data run_without_data() is called in between, and nothing else.
  void begin_pass(const ExchangedPass& pass);
  void run_without_data();
  void end_pass();
  /// In a W: makes the products that its I has put off, and lets go of each.
  void make_products(std::vector<DeferredGradients::Product>& products);

  /// The matrices of `holding` are gathered from these pieces from now on: another version of Holding::weights.
  void gather_from(const Holding& holding, const at::Tensor& pieces);

  // Of SegmentEvents.
  void before_forward(size_t segment);
  void after_forward(size_t segment);
  void before_backward(size_t segment);
  void after_backward(size_t segment);

  /// Reductions of gradients that stay whole are over when this returns.
  void wait_for_reductions();
  /// The most bytes that were held at a time of whole weights and of gradients that are not reduced yet.
  int64_t most_held() const { return most_held_; }

 private:
  /// A unit of matrices in its holding.
  struct Matrices {
    const Holding* holding = nullptr;
    WeightUnit* unit = nullptr;
    at::Tensor pieces{};  ///< own pieces of weights, from which they are gathered

    Divided divided() const { return holding->divided(ParameterKind::matrix); }
    /// To which reduced ones are added, or in which they are reduced.
    const at::Tensor& gradients() const { return holding->gradients(ParameterKind::matrix); }
  };
  Matrices* matrices_with(const at::Tensor& weight) const;
  /// kNowhere if no pass is under way, or it does not come there.
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
  ExchangedUnits units_;                                         ///< of matrices_, by the same numbers
  std::map<const c10::TensorImpl*, Matrices*> owner_of_weight_;  ///< by Parameter::compute
  ExchangedPass pass_;
  bool in_backward_ = false;
  ExchangePlan plan_;
  size_t next_ = 0;  ///< of the plan's exchanges
  Matrices* reducing_ = nullptr;
  comm::Work reduction_;
  std::vector<comm::Work> reductions_;  ///< of gradients that stay whole
  int64_t held_ = 0, most_held_ = 0;    ///< bytes
};

}  // namespace funicular::parallel
