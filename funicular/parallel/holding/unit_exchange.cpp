#include "funicular/parallel/holding/unit_exchange.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "funicular/runtime/dry_run.h"

namespace funicular::parallel {

namespace {

using Exchange = ExchangePlan::Exchange;
using Visit = ExchangePlan::Visit;

constexpr size_t kNowhere = ExchangePlan::kNowhere;

/// Whether an I pass has added something to this gradient, which was zero before. Waits for a GPU. A dry run has no
/// values; there it tells whether some weight of the unit has no deferred product.
bool is_touched(const WeightUnit& unit) {
  const at::Tensor& gradient = unit.gradient;
  const size_t size = gradient.nbytes();
  if (size == 0) return false;
  if (DryRun::is_on()) {
    const DeferredGradients* const deferred = DeferredGradients::current();
    return !deferred || std::any_of(unit.parameters.begin(), unit.parameters.end(),
                                    [&](const auto& each) { return !deferred->holds(each.first->compute); });
  }
  if (!gradient.is_cpu()) return gradient.ne(0).any().item<bool>();
  const auto* const bytes = static_cast<const unsigned char*>(gradient.const_data_ptr());
  return bytes[0] != 0 || std::memcmp(bytes, bytes + 1, size - 1) != 0;
}

}  // namespace

UnitExchange::UnitExchange(comm::Group ranks, const std::vector<Holding*>& holdings,
                           std::function<void(const comm::Work&)> wait)
    : ranks_(std::move(ranks)), wait_(std::move(wait)) {
  for (Holding* const holding : holdings)
    for (WeightUnit& unit : holding->units())
      if (unit.kind == ParameterKind::matrix)
        matrices_.push_back({holding, &unit, holding->weights(unit.kind)});
      else
        vectors_.push_back(&unit);
  for (Matrices& one : matrices_) {
    units_.add({one.unit->segments, one.divided() == Divided::weights});
    for (const auto& [parameter, begin] : one.unit->parameters)
      owner_of_weight_[parameter->compute.unsafeGetTensorImpl()] = &one;
  }
}

void UnitExchange::gather_from(const Holding& holding, const at::Tensor& pieces) {
  for (Matrices& one : matrices_)
    if (one.holding == &holding) one.pieces = pieces;
}

UnitExchange::Matrices* UnitExchange::matrices_with(const at::Tensor& weight) const {
  const auto found = owner_of_weight_.find(weight.unsafeGetTensorImpl());
  return found == owner_of_weight_.end() ? nullptr : found->second;
}

// ---- the order of a pass

void UnitExchange::begin_pass(const ExchangedPass& pass) {
  pass_ = pass;
  in_backward_ = false;
  next_ = 0;
  for (const Matrices& one : matrices_) one.unit->reduced = false;
  plan_ = ExchangePlan(pass, units_);
}

size_t UnitExchange::forward_visit(size_t segment) const {
  const bool first = pass_.kind == ExchangedPass::forward || pass_.kind == ExchangedPass::forward_backward;
  return plan_.visit_of(first && !in_backward_ ? Visit::forward : Visit::again, segment);
}

void UnitExchange::start_next() {
  const at::NoGradGuard no_gradient;
  const Exchange exchange = plan_.exchanges[next_++];
  Matrices& matrices = matrices_[exchange.unit];
  switch (exchange.what) {
    case Exchange::gather:
      return gather(matrices);
    case Exchange::reduce:
      return reduce(matrices);
    default:
      return settle(matrices);
  }
}

/// Starts all gathers for visits up to this one, and everything planned before them.
void UnitExchange::start_gathers(size_t visit) {
  size_t end = next_;
  for (size_t i = next_; i < plan_.exchanges.size(); ++i)
    if (plan_.exchanges[i].what == Exchange::gather && plan_.exchanges[i].visit <= visit) end = i + 1;
  while (next_ < end) start_next();
}

/// Starts all reductions after visits up to this one, and everything planned before them.
void UnitExchange::start_reductions(size_t visit) {
  size_t end = next_;
  for (size_t i = next_; i < plan_.exchanges.size(); ++i)
    if (plan_.exchanges[i].what != Exchange::gather && plan_.exchanges[i].visit <= visit) end = i + 1;
  while (next_ < end) start_next();
}

/// Waits for this segment's weights, and starts to gather the next segment's, which arrive during the computation.
void UnitExchange::enter(size_t visit, size_t segment) {
  if (visit != kNowhere) start_gathers(visit);
  for (const WeightUnit* unit : vectors_) wait_(unit->gathering);
  for (const size_t unit : units_.used_by(segment)) wait_(matrices_[unit].unit->gathering);
  if (visit == kNowhere) return;
  const auto is_next = [&](const Exchange& one) {
    return one.what == Exchange::gather && one.visit == visit + 1;
  };
  while (next_ < plan_.exchanges.size() && is_next(plan_.exchanges[next_])) start_next();
}

void UnitExchange::leave(size_t visit) {
  if (visit == kNowhere) return;
  for (const size_t unit : plan_.visits[visit].released) release(matrices_[unit]);
}

void UnitExchange::run_without_data() {
  for (size_t visit = 0; visit < plan_.visits.size(); ++visit) {
    enter(visit, plan_.visits[visit].segment);
    if (plan_.visits[visit].phase == Visit::backward) start_reductions(visit);
    leave(visit);
  }
}

void UnitExchange::end_pass() {
  while (next_ < plan_.exchanges.size()) start_next();
  take_reduced();
  for (Matrices& one : matrices_) release(one);
  plan_ = {};
  next_ = 0;
}

// ---- the events of a pass with data

void UnitExchange::before_forward(size_t segment) {
  enter(forward_visit(segment), segment);
}

void UnitExchange::after_forward(size_t segment) {
  leave(forward_visit(segment));
}

void UnitExchange::before_backward(size_t segment) {
  in_backward_ = true;
  enter(plan_.visit_of(Visit::backward, segment), segment);
  for (const size_t unit : units_.used_by(segment)) make_gradient(matrices_[unit]);
}

void UnitExchange::after_backward(size_t segment) {
  const size_t visit = plan_.visit_of(Visit::backward, segment);
  if (visit == kNowhere) return;
  start_reductions(visit);
  leave(visit);
}

/// Makes the deferred products. A unit's reduction starts once all its products are made and all reductions before it
/// in the plan have started.
void UnitExchange::make_products(std::vector<DeferredGradients::Product>& products) {
  std::map<const Matrices*, int64_t> left;
  for (const DeferredGradients::Product& product : products)
    if (const Matrices* const one = matrices_with(product.weight)) ++left[one];
  for (DeferredGradients::Product& product : products) {
    Matrices* const one = matrices_with(product.weight);
    if (one) make_gradient(*one);
    product.make();
    product = {};
    if (one) --left[one];
    while (next_ < plan_.exchanges.size() && left[&matrices_[plan_.exchanges[next_].unit]] == 0) start_next();
  }
}

// ---- memory of weights and gradients

void UnitExchange::gather(Matrices& matrices) {
  matrices.unit->start_gather(matrices.pieces, ranks_);
  hold(static_cast<int64_t>(matrices.unit->weights.tensor().nbytes()));
}

void UnitExchange::release(Matrices& matrices) {
  WeightUnit& unit = *matrices.unit;
  if (!unit.gathered) return;
  wait_(unit.gathering);
  held_ -= static_cast<int64_t>(unit.weights.tensor().nbytes());
  unit.weights.release();
  unit.gathered = false;
}

void UnitExchange::make_gradient(Matrices& matrices) {
  WeightUnit& unit = *matrices.unit;
  if (matrices.divided() < Divided::gradients || unit.gradient.defined() || unit.reduced) return;
  unit.gradient = at::zeros({unit.size}, matrices.gradients().options());
  hold(static_cast<int64_t>(unit.gradient.nbytes()));
  for (const auto& [parameter, begin] : unit.parameters) {
    parameter->gradient =
        unit.gradient.narrow(0, begin, parameter->compute.numel()).view(parameter->compute.sizes());
    parameter->compute.mutable_grad() = parameter->gradient;
  }
}

void UnitExchange::reduce(Matrices& matrices) {
  WeightUnit& unit = *matrices.unit;
  if (matrices.divided() < Divided::gradients) {
    reductions_.push_back(ranks_.start_reduce_scatter(unit.whole_in(matrices.gradients()), unit.pieces));
    return;
  }
  take_reduced();  // one reduction at a time, so that the gradient before it can be freed
  make_gradient(matrices);
  unit.reduced = true;
  reducing_ = &matrices;
  reduction_ = ranks_.start_reduce_scatter(unit.gradient, unit.pieces);
}

/// Frees a gradient to which the I pass has added nothing, because all of it was deferred. A gradient with values
/// stays, and the next W adds the rest.
void UnitExchange::settle(Matrices& matrices) {
  if (matrices.unit->gradient.defined() && !is_touched(*matrices.unit)) free_gradient(matrices);
}

void UnitExchange::take_reduced() {
  if (!reducing_) return;
  const at::NoGradGuard no_gradient;
  const WeightUnit& unit = *reducing_->unit;
  wait_(reduction_);
  unit.compact_in(reducing_->gradients()).add_(unit.piece_of(unit.gradient));
  free_gradient(*reducing_);
  reducing_ = nullptr;
}

void UnitExchange::wait_for_reductions() {
  for (const comm::Work& work : reductions_) wait_(work);
  reductions_.clear();
}

void UnitExchange::free_gradient(Matrices& matrices) {
  WeightUnit& unit = *matrices.unit;
  for (const auto& [parameter, begin] : unit.parameters) {
    parameter->compute.mutable_grad().reset();
    parameter->gradient.reset();
  }
  held_ -= static_cast<int64_t>(unit.gradient.nbytes());
  unit.gradient.reset();
}

void UnitExchange::hold(int64_t bytes) {
  most_held_ = std::max(most_held_, held_ += bytes);
}

}  // namespace funicular::parallel
