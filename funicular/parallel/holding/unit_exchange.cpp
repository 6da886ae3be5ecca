#include "funicular/parallel/holding/unit_exchange.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "funicular/runtime/dry_run.h"

namespace funicular::parallel {

namespace {

constexpr size_t kNowhere = static_cast<size_t>(-1);

/// Whether something was added to the gradient, of zeros, in an I. In a dry run numbers tell nothing: there it is what was not
/// put off.
bool is_touched(const WeightUnit& unit) {
  const at::Tensor& gradient = unit.gradient;
  const size_t size = gradient.nbytes();
  if (size == 0) return false;
  if (DryRun::is_on()) {
    const DeferredGradients* const deferred = DeferredGradients::current();
    return !deferred || std::any_of(unit.parameters.begin(), unit.parameters.end(),
                                    [&](const auto& each) { return !deferred->holds(each.first->compute); });
  }
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
    for (const size_t segment : one.unit->segments) users_[segment].push_back(&one);
    for (const auto& [parameter, begin] : one.unit->parameters)
      owner_of_weight_[parameter->compute.unsafeGetTensorImpl()] = &one;
  }
}

void UnitExchange::gather_from(const Holding& holding, const at::Tensor& pieces) {
  for (Matrices& one : matrices_)
    if (one.holding == &holding) one.pieces = pieces;
}

const std::vector<UnitExchange::Matrices*>& UnitExchange::used_by(size_t segment) const {
  static const std::vector<Matrices*> none;
  const auto found = users_.find(segment);
  return found == users_.end() ? none : found->second;
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
  plan_visits();
  plan_exchanges();
}

void UnitExchange::plan_visits() {
  visits_.clear();
  if (pass_.kind == ExchangedPass::forward || pass_.kind == ExchangedPass::forward_backward)
    for (size_t segment = pass_.begin; segment < pass_.end; ++segment)
      visits_.push_back({Visit::forward, segment});
  if (pass_.kind == ExchangedPass::forward) return;
  std::vector<size_t> begins = pass_.groups;
  const bool again = !begins.empty();
  if (!again) begins.push_back(pass_.begin);
  begins.push_back(pass_.end);
  for (size_t g = begins.size() - 1; g-- > 0;) {
    const bool recorded = !again || (g + 2 == begins.size() && pass_.last_group_is_recorded);
    for (size_t segment = begins[g]; !recorded && segment < begins[g + 1]; ++segment)
      visits_.push_back({Visit::again, segment});
    for (size_t segment = begins[g + 1]; segment-- > begins[g];)
      visits_.push_back({Visit::backward, segment});
  }
}

/// Weights stay from a visit to the next that uses them, too, and those of a group that is computed again until its backward pass.
void UnitExchange::plan_exchanges() {
  plan_.clear();
  std::set<const Matrices*> whole;
  for (size_t visit = 0; visit < visits_.size(); ++visit) {
    for (Matrices* one : used_by(visits_[visit].segment))
      if (one->divided() == Divided::weights && pass_.kind != ExchangedPass::weight_gradient &&
          whole.insert(one).second)
        plan_.push_back({Exchange::gather, one, visit});
    if (visit > 0) plan_reductions(visit - 1);
    if (visits_[visit].phase == Visit::again) continue;
    const std::vector<Matrices*> none,
        &next = visit + 1 < visits_.size() ? used_by(visits_[visit + 1].segment) : none;
    for (Matrices* one : used_by(visits_[visit].segment))
      if (std::count(next.begin(), next.end(), one) == 0 && whole.erase(one) > 0)
        visits_[visit].released.push_back(one);
  }
  if (!visits_.empty()) plan_reductions(visits_.size() - 1);
}

/// A unit of several segments is reduced, or settled, behind the first of them in the pass.
void UnitExchange::plan_reductions(size_t visit) {
  const size_t segment = visits_[visit].segment;
  if (visits_[visit].phase != Visit::backward) return;
  const auto what = pass_.kind == ExchangedPass::input_gradient ? Exchange::settle : Exchange::reduce;
  for (Matrices* one : used_by(segment)) {
    const std::vector<size_t>& users = one->unit->segments;
    const bool later = std::any_of(users.begin(), users.end(),
                                   [&](size_t other) { return other >= pass_.begin && other < segment; });
    if (!later) plan_.push_back({what, one, visit});
  }
}

size_t UnitExchange::visit_of(Visit::Phase phase, size_t segment) const {
  const auto found = std::find_if(visits_.begin(), visits_.end(), [&](const Visit& visit) {
    return visit.phase == phase && visit.segment == segment;
  });
  return found == visits_.end() ? kNowhere : static_cast<size_t>(found - visits_.begin());
}

void UnitExchange::start_next() {
  const at::NoGradGuard no_gradient;
  const Exchange exchange = plan_[next_++];
  switch (exchange.what) {
    case Exchange::gather:
      return gather(*exchange.matrices);
    case Exchange::reduce:
      return reduce(*exchange.matrices);
    default:
      return settle(*exchange.matrices);
  }
}

/// All gathers for visits up to this one, and what comes before them.
void UnitExchange::start_gathers(size_t visit) {
  size_t end = next_;
  for (size_t i = next_; i < plan_.size(); ++i)
    if (plan_[i].what == Exchange::gather && plan_[i].visit <= visit) end = i + 1;
  while (next_ < end) start_next();
}

/// All reductions behind visits up to this one, and what comes before them.
void UnitExchange::start_reductions(size_t visit) {
  size_t end = next_;
  for (size_t i = next_; i < plan_.size(); ++i)
    if (plan_[i].what != Exchange::gather && plan_[i].visit <= visit) end = i + 1;
  while (next_ < end) start_next();
}

/// Returns when the weights of this segment are there; those of the next one come meanwhile.
void UnitExchange::enter(size_t visit, size_t segment) {
  if (visit != kNowhere) start_gathers(visit);
  for (const WeightUnit* unit : vectors_) wait_(unit->gathering);
  for (const Matrices* one : used_by(segment)) wait_(one->unit->gathering);
  if (visit == kNowhere) return;
  while (next_ < plan_.size() && plan_[next_].what == Exchange::gather && plan_[next_].visit == visit + 1)
    start_next();
}

void UnitExchange::leave(size_t visit) {
  if (visit == kNowhere) return;
  for (Matrices* one : visits_[visit].released) release(*one);
}

void UnitExchange::run_without_data() {
  for (size_t visit = 0; visit < visits_.size(); ++visit) {
    enter(visit, visits_[visit].segment);
    if (visits_[visit].phase == Visit::backward) start_reductions(visit);
    leave(visit);
  }
}

void UnitExchange::end_pass() {
  while (next_ < plan_.size()) start_next();
  take_reduced();
  for (Matrices& one : matrices_) release(one);
  plan_.clear();
  visits_.clear();
  next_ = 0;
}

// ---- what a pass with data comes to

void UnitExchange::before_forward(size_t segment) {
  enter(visit_of(forward_phase(), segment), segment);
}

void UnitExchange::after_forward(size_t segment) {
  leave(visit_of(forward_phase(), segment));
}

void UnitExchange::before_backward(size_t segment) {
  in_backward_ = true;
  enter(visit_of(Visit::backward, segment), segment);
  for (Matrices* one : used_by(segment)) make_gradient(*one);
}

void UnitExchange::after_backward(size_t segment) {
  const size_t visit = visit_of(Visit::backward, segment);
  if (visit == kNowhere) return;
  start_reductions(visit);
  leave(visit);
}

/// A unit's gradient is reduced when no product for it is left, and those before it in the plan are.
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
    while (next_ < plan_.size() && left[plan_[next_].matrices] == 0) start_next();
  }
}

// ---- weights and gradients that come and go

void UnitExchange::gather(Matrices& matrices) {
  Holding::start_gather(*matrices.unit, matrices.pieces, ranks_);
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
  take_reduced();  // one at a time, so that the one before can go
  make_gradient(matrices);
  unit.reduced = true;
  reducing_ = &matrices;
  reduction_ = ranks_.start_reduce_scatter(unit.gradient, unit.pieces);
}

/// Frees a gradient to which an I has added nothing: all of it was put off. The next W adds the rest to the others.
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
