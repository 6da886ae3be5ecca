#include "funicular/parallel/holding/exchange_plan.h"

#include <algorithm>
#include <set>
#include <utility>

namespace funicular::parallel {

void ExchangedUnits::add(Unit unit) {
  for (const size_t segment : unit.segments) users[segment].push_back(units.size());
  units.push_back(std::move(unit));
}

const std::vector<size_t>& ExchangedUnits::used_by(size_t segment) const {
  static const std::vector<size_t> none;
  const auto found = users.find(segment);
  return found == users.end() ? none : found->second;
}

ExchangePlan::ExchangePlan(const ExchangedPass& pass, const ExchangedUnits& units) {
  add_visits(pass);
  std::set<size_t> whole;
  for (size_t visit = 0; visit < visits.size(); ++visit) {
    for (const size_t unit : units.used_by(visits[visit].segment))
      if (units.units[unit].is_gathered && pass.kind != ExchangedPass::weight_gradient &&
          whole.insert(unit).second)
        exchanges.push_back({Exchange::gather, unit, visit});
    if (visit > 0) add_reductions(pass, units, visit - 1);
    if (visits[visit].phase == Visit::again) continue;
    const std::vector<size_t> none,
        &next = visit + 1 < visits.size() ? units.used_by(visits[visit + 1].segment) : none;
    for (const size_t unit : units.used_by(visits[visit].segment))
      if (std::count(next.begin(), next.end(), unit) == 0 && whole.erase(unit) > 0)
        visits[visit].released.push_back(unit);
  }
  if (!visits.empty()) add_reductions(pass, units, visits.size() - 1);
}

void ExchangePlan::add_visits(const ExchangedPass& pass) {
  if (pass.kind == ExchangedPass::forward || pass.kind == ExchangedPass::forward_backward)
    for (size_t segment = pass.begin; segment < pass.end; ++segment)
      visits.push_back({Visit::forward, segment});
  if (pass.kind == ExchangedPass::forward) return;
  std::vector<size_t> begins = pass.groups;
  const bool again = !begins.empty();
  if (!again) begins.push_back(pass.begin);
  begins.push_back(pass.end);
  for (size_t g = begins.size() - 1; g-- > 0;) {
    const bool recorded = !again || (g + 2 == begins.size() && pass.last_group_is_recorded);
    for (size_t segment = begins[g]; !recorded && segment < begins[g + 1]; ++segment)
      visits.push_back({Visit::again, segment});
    for (size_t segment = begins[g + 1]; segment-- > begins[g];) visits.push_back({Visit::backward, segment});
  }
}

void ExchangePlan::add_reductions(const ExchangedPass& pass, const ExchangedUnits& units, size_t visit) {
  const size_t segment = visits[visit].segment;
  if (visits[visit].phase != Visit::backward) return;
  const auto what = pass.kind == ExchangedPass::input_gradient ? Exchange::settle : Exchange::reduce;
  for (const size_t unit : units.used_by(segment)) {
    const std::vector<size_t>& users = units.units[unit].segments;
    const bool later = std::any_of(users.begin(), users.end(),
                                   [&](size_t other) { return other >= pass.begin && other < segment; });
    if (!later) exchanges.push_back({what, unit, visit});
  }
}

size_t ExchangePlan::visit_of(Visit::Phase phase, size_t segment) const {
  const auto found = std::find_if(visits.begin(), visits.end(), [&](const Visit& visit) {
    return visit.phase == phase && visit.segment == segment;
  });
  return found == visits.end() ? kNowhere : static_cast<size_t>(found - visits.begin());
}

}  // namespace funicular::parallel
