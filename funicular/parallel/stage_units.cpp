#include "funicular/parallel/stage_units.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <set>
#include <utility>

#include "funicular/parallel/zero_unit.h"

namespace funicular::parallel {

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
    for (StageUnit& unit : *units)
      for (const size_t segment : unit.segments) users_[segment].push_back(&unit);
}

std::vector<StageUnit*> StageExchange::used_by(size_t segment) const {
  const auto found = users_.find(segment);
  return found == users_.end() ? std::vector<StageUnit*>() : found->second;
}

// ---- the order of a pass

void StageExchange::begin_pass(const Stage& stage, bool backward, Recompute recompute, bool ends_model) {
  backward_ = backward;
  last_segment_ = stage.end - 1;
  plan_.clear();
  next_ = 0;
  for (auto& [segment, units] : users_)
    for (StageUnit* unit : units) unit->reduced = false;
  if (backward)
    plan_backward(stage, recompute, ends_model);
  else
    plan_gathers(stage.begin, stage.end);
}

/// Those of segments [begin, end) that are not in the plan, in the order of the pass.
void StageExchange::plan_gathers(size_t begin, size_t end) {
  if (zero_ < 3) return;
  std::set<const StageUnit*> planned;
  for (const Exchange& exchange : plan_)
    if (!exchange.reduces) planned.insert(exchange.unit);
  for (size_t i = 0; i < end - begin; ++i) {
    const size_t segment = backward_ ? end - 1 - i : begin + i;
    for (StageUnit* unit : used_by(segment))
      if (planned.insert(unit).second) plan_.push_back({false, unit, segment});
  }
}

/// A unit of several segments is reduced behind the first of them on this stage.
void StageExchange::plan_reductions(const Stage& stage, size_t begin, size_t end) {
  for (size_t segment = end; segment-- > begin;)
    for (StageUnit* unit : used_by(segment)) {
      const bool later = std::any_of(unit->segments.begin(), unit->segments.end(),
                                     [&](size_t other) { return other >= stage.begin && other < segment; });
      if (!later) plan_.push_back({true, unit, segment});
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
  StageUnit& unit = *exchange.unit;
  if (!exchange.reduces) {
    if (unit.gathered) return;
    unit.weights.restore();
    hold(static_cast<int64_t>(unit.weights.tensor().nbytes()));
    const at::Tensor& whole = unit.weights.tensor();
    copy_bytes(unit.compact_in(of(unit).values), whole.narrow(0, unit.own.begin, unit.own.size));
    unit.gathering = replicas_.start_all_gather(whole, unit.pieces);
    unit.gathered = true;
    return;
  }
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
  if (next_ < plan_.size() && !plan_[next_].reduces) start_next();  // the next one's, meanwhile
}

void StageExchange::before_forward(size_t segment) {
  ensure(segment);
}

void StageExchange::after_forward(size_t segment) {
  if (zero_ < 3 || backward_) return;
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
    if (plan_[i].reduces && plan_[i].segment >= segment) end = i + 1;
  while (next_ < end) start_next();
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

void StageExchange::take_reduced() {
  if (!reducing_) return;
  const at::NoGradGuard no_gradient;
  StageUnit& unit = *reducing_;
  wait_(reduction_);
  unit.compact_in(of(unit).gradients).add_(unit.gradient.narrow(0, unit.own.begin, unit.own.size));
  for (const auto& [parameter, begin] : unit.parameters) {
    parameter->compute.mutable_grad().reset();
    parameter->gradient.reset();
  }
  held_ -= static_cast<int64_t>(unit.gradient.nbytes());
  unit.gradient.reset();
  reducing_ = nullptr;
}

void StageExchange::hold(int64_t bytes) {
  most_held_ = std::max(most_held_, held_ += bytes);
}

}  // namespace funicular::parallel
