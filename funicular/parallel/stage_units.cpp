#include "funicular/parallel/stage_units.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "funicular/parallel/zero_unit.h"
#include "funicular/runtime/dry_run.h"

namespace funicular::parallel {

using pipeline::Kind;

namespace {

int64_t aligned(int64_t size) {
  return (size + 63) / 64 * 64;  // as in the layout
}

bool groups_segments(Recompute recompute) {
  return recompute == Recompute::full || recompute == Recompute::sqrt;
}

/// Where blocks of the layout begin in a unit.
std::vector<int64_t> block_begins(const StageUnit& unit, const FlatLayout& layout) {
  std::map<const Parameter*, int64_t> place, offset;
  for (const auto& [parameter, begin] : unit.parameters) place[parameter] = begin;
  for (const FlatLayout::Entry& entry : layout.entries()) offset[entry.parameter] = entry.offset;
  std::vector<int64_t> begins;
  for (const FlatLayout::Layer& layer : layout.layers()) {
    const auto found = place.find(layer.parameter);
    if (found == place.end()) continue;
    for (int64_t b = layer.blocks.begin; b < layer.blocks.end; ++b)
      begins.push_back(found->second + layout.blocks()[static_cast<size_t>(b)].elements.begin -
                       offset.at(layer.parameter));
  }
  std::sort(begins.begin(), begins.end());
  return begins;
}

/// Whether something was added to the gradient, of zeros, in an I. In a dry run numbers tell nothing: there it is what was not
/// put off.
bool is_touched(const StageUnit& unit) {
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

std::pair<int64_t, int64_t> divide_units(std::vector<StageUnit>& units, const FlatLayout& layout,
                                         int replicas, int replica) {
  int64_t whole = 0, compact = 0;
  for (StageUnit& unit : units) {
    unit.begin = whole;
    unit.size = 0;
    for (auto& [parameter, begin] : unit.parameters) {
      begin = unit.size;
      unit.size += aligned(parameter->compute.numel());
    }
    const std::vector<int64_t> begins = block_begins(unit, layout);
    unit.pieces.clear();
    int64_t begin = 0;
    for (int d = 1; d <= replicas; ++d) {
      const auto next = std::lower_bound(begins.begin(), begins.end(), unit.size * d / replicas);
      const int64_t end = std::max(begin, d == replicas || next == begins.end() ? unit.size : *next);
      unit.pieces.push_back({begin, end - begin});
      begin = end;
    }
    unit.own = unit.pieces[static_cast<size_t>(replica)];
    unit.compact = compact;
    whole += unit.size;
    compact += unit.own.size;
  }
  return {whole, compact};
}

StageExchange::StageExchange(comm::Group replicas, int zero, std::vector<StageUnit>& own,
                             std::vector<StageUnit>& copied, Buffers buffers, Buffers copies,
                             std::function<void(const comm::Work&)> wait)
    : replicas_(std::move(replicas)),
      zero_(zero),
      buffers_(std::move(buffers)),
      copies_(std::move(copies)),
      wait_(std::move(wait)) {
  for (std::vector<StageUnit>* units : {&own, &copied})
    for (StageUnit& unit : *units) {
      for (const size_t segment : unit.segments) users_[segment].push_back(&unit);
      for (const auto& [parameter, begin] : unit.parameters)
        unit_of_weight_[parameter->compute.unsafeGetTensorImpl()] = &unit;
    }
}

std::vector<StageUnit*> StageExchange::used_by(size_t segment) const {
  const auto found = users_.find(segment);
  return found == users_.end() ? std::vector<StageUnit*>() : found->second;
}

StageUnit* StageExchange::unit_of(const at::Tensor& weight) const {
  const auto found = unit_of_weight_.find(weight.unsafeGetTensorImpl());
  return found == unit_of_weight_.end() ? nullptr : found->second;
}

// ---- the order of a pass

void StageExchange::begin_pass(const Stage& stage, Kind kind, Recompute recompute, bool ends_model) {
  kind_ = kind;
  last_segment_ = stage.end - 1;
  plan_.clear();
  next_ = 0;
  for (auto& [segment, units] : users_)
    for (StageUnit* unit : units) unit->reduced = false;
  if (kind == Kind::forward)
    plan_gathers(stage.begin, stage.end);
  else if (kind == Kind::weight_gradient)
    plan_reductions(stage, stage.begin, stage.end);
  else
    plan_backward(stage, recompute, ends_model);
}

/// Those of segments [begin, end) that are not in the plan, in the order of the pass.
void StageExchange::plan_gathers(size_t begin, size_t end) {
  if (zero_ < 3) return;
  std::set<const StageUnit*> planned;
  for (const Exchange& exchange : plan_)
    if (exchange.what == Exchange::gather) planned.insert(exchange.unit);
  for (size_t i = 0; i < end - begin; ++i) {
    const size_t segment = kind_ == Kind::forward ? begin + i : end - 1 - i;
    for (StageUnit* unit : used_by(segment))
      if (planned.insert(unit).second) plan_.push_back({Exchange::gather, unit, segment});
  }
}

/// A unit of several segments is reduced, or settled, behind the first of them on this stage.
void StageExchange::plan_reductions(const Stage& stage, size_t begin, size_t end) {
  const Exchange::What what = kind_ == Kind::input_gradient ? Exchange::settle : Exchange::reduce;
  for (size_t segment = end; segment-- > begin;)
    for (StageUnit* unit : used_by(segment)) {
      const bool later = std::any_of(unit->segments.begin(), unit->segments.end(),
                                     [&](size_t other) { return other >= stage.begin && other < segment; });
      if (!later) plan_.push_back({what, unit, segment});
    }
}

/// Segments that are computed again together have their weights together; of single ones those of the next are gathered
/// before the last gradient is reduced.
void StageExchange::plan_backward(const Stage& stage, Recompute recompute, bool ends_model) {
  const size_t size = stage.end - stage.begin;
  std::vector<size_t> begins;
  if (groups_segments(recompute))
    begins = recompute_groups(size, recompute);
  else
    for (size_t i = 0; i < size; ++i) begins.push_back(i);
  begins.push_back(size);
  std::vector<std::pair<size_t, size_t>> groups;
  for (size_t g = 0; g + 1 < begins.size(); ++g) {
    const size_t begin = stage.begin + begins[g], end = stage.begin + begins[g + 1];
    const bool recorded = g + 2 == begins.size() && ends_model;  // is not computed again
    for (size_t segment = begin; recorded && segment + 1 < end; ++segment)
      groups.push_back({segment, segment + 1});
    groups.push_back({recorded ? end - 1 : begin, end});
  }
  for (size_t g = groups.size(); g-- > 0;) {
    plan_gathers(groups[g].first, groups[g].second);
    if (g > 0 && groups[g - 1].second - groups[g - 1].first == 1)
      plan_gathers(groups[g - 1].first, groups[g - 1].second);
    plan_reductions(stage, groups[g].first, groups[g].second);
  }
}

void StageExchange::start_next() {
  const at::NoGradGuard no_gradient;
  const Exchange exchange = plan_[next_++];
  if (exchange.what == Exchange::gather) return start_gather(*exchange.unit);
  if (exchange.what == Exchange::settle) return settle(*exchange.unit);
  start_reduction(*exchange.unit);
}

void StageExchange::start_gather(StageUnit& unit) {
  if (unit.gathered) return;
  unit.weights.restore();
  hold(static_cast<int64_t>(unit.weights.tensor().nbytes()));
  const at::Tensor& whole = unit.weights.tensor();
  copy_bytes(unit.compact_in(of(unit).values), whole.narrow(0, unit.own.begin, unit.own.size));
  unit.gathering = replicas_.start_all_gather(whole, unit.pieces);
  unit.gathered = true;
}

void StageExchange::start_reduction(StageUnit& unit) {
  take_reduced();  // one at a time, so that the one before can go
  make_gradient(unit);
  unit.reduced = true;
  reducing_ = &unit;
  reduction_ = replicas_.start_reduce_scatter(unit.gradient, unit.pieces);
  release(unit);
}

void StageExchange::end_pass() {
  while (next_ < plan_.size()) start_next();
  take_reduced();
  for (auto& [segment, units] : users_)
    for (StageUnit* unit : units) release(*unit);
}

// ---- what a pass with data comes to

void StageExchange::ensure(size_t segment) {
  if (zero_ < 3) return;
  for (StageUnit* unit : used_by(segment)) {
    while (!unit->gathered && next_ < plan_.size()) start_next();
    wait_(unit->gathering);
  }
  if (next_ < plan_.size() && plan_[next_].what == Exchange::gather)
    start_next();  // the next one's, meanwhile
}

void StageExchange::before_forward(size_t segment) {
  ensure(segment);
}

void StageExchange::after_forward(size_t segment) {
  if (zero_ < 3 || kind_ != Kind::forward) return;
  for (StageUnit* unit : used_by(segment)) {
    const bool later = std::any_of(unit->segments.begin(), unit->segments.end(),
                                   [&](size_t other) { return other > segment && other <= last_segment_; });
    if (!later) release(*unit);
  }
}

void StageExchange::before_backward(size_t segment) {
  ensure(segment);
  for (StageUnit* unit : used_by(segment)) make_gradient(*unit);
}

void StageExchange::after_backward(size_t segment) {
  size_t end = next_;
  for (size_t i = next_; i < plan_.size(); ++i)
    if (plan_[i].what != Exchange::gather && plan_[i].segment >= segment) end = i + 1;
  while (next_ < end) start_next();
}

/// A unit's gradient is reduced when no product for it is left, and those before it in the plan are.
void StageExchange::make_products(std::vector<DeferredGradients::Product>& products) {
  std::map<const StageUnit*, int64_t> left;
  for (const DeferredGradients::Product& product : products)
    if (const StageUnit* const unit = unit_of(product.weight)) ++left[unit];
  for (DeferredGradients::Product& product : products) {
    StageUnit* const unit = unit_of(product.weight);
    if (unit) make_gradient(*unit);
    product.make();
    product = {};
    if (unit) --left[unit];
    while (next_ < plan_.size() && left[plan_[next_].unit] == 0) start_next();
  }
}

// ---- weights and gradients that come and go

void StageExchange::release(StageUnit& unit) {
  if (zero_ < 3 || !unit.gathered) return;
  wait_(unit.gathering);
  held_ -= static_cast<int64_t>(unit.weights.tensor().nbytes());
  unit.weights.release();
  unit.gathered = false;
}

void StageExchange::make_gradient(StageUnit& unit) {
  if (unit.gradient.defined() || unit.reduced) return;
  unit.gradient = at::zeros({unit.size}, of(unit).gradients.options());
  hold(static_cast<int64_t>(unit.gradient.nbytes()));
  for (const auto& [parameter, begin] : unit.parameters) {
    parameter->gradient =
        unit.gradient.narrow(0, begin, parameter->compute.numel()).view(parameter->compute.sizes());
    parameter->compute.mutable_grad() = parameter->gradient;
  }
}

/// A gradient to which an I has added nothing goes: it has been put off whole. Of others the next W makes the rest.
void StageExchange::settle(StageUnit& unit) {
  release(unit);
  if (unit.gradient.defined() && !is_touched(unit)) free_gradient(unit);
}

void StageExchange::take_reduced() {
  if (!reducing_) return;
  const at::NoGradGuard no_gradient;
  StageUnit& unit = *reducing_;
  wait_(reduction_);
  unit.compact_in(of(unit).gradients).add_(unit.gradient.narrow(0, unit.own.begin, unit.own.size));
  free_gradient(unit);
  reducing_ = nullptr;
}

void StageExchange::free_gradient(StageUnit& unit) {
  for (const auto& [parameter, begin] : unit.parameters) {
    parameter->compute.mutable_grad().reset();
    parameter->gradient.reset();
  }
  held_ -= static_cast<int64_t>(unit.gradient.nbytes());
  unit.gradient.reset();
}

void StageExchange::hold(int64_t bytes) {
  most_held_ = std::max(most_held_, held_ += bytes);
}

}  // namespace funicular::parallel
