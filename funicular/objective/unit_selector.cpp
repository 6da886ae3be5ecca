#include "funicular/objective/unit_selector.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace funicular::objective {

namespace {

double mean_size(const std::vector<Unit>& units) {
  double sum = 0;
  for (const Unit& unit : units) sum += unit.size();
  return sum / static_cast<double>(units.size());
}

/// Chooses one of two results at random, so that the expected result is `wanted`: true for the higher.
bool takes_higher(double wanted, double lower, double higher, double rounding) {
  return rounding < (wanted - lower) / (higher - lower);
}

/// Returns the number of chosen tokens, `enough`, at which the choice stops, so that the expected number of tokens is
/// the budget. By renewal theory (Feller 1971, volume 2, chapter XI), a unit begins after x tokens with probability
/// u(x) = Σ share(s) u(x - s), with u(0) = 1. By Wald's equation, the units that begin before `enough` tokens have
/// mean · Σ u(x) tokens, over x < enough. Sizes are taken as drawn with replacement.
int64_t tokens_that_are_enough(const std::vector<Unit>& units, double budget, double rounding) {
  std::map<size_t, double> shares;
  for (const Unit& unit : units)
    shares[static_cast<size_t>(unit.size())] += 1 / static_cast<double>(units.size());
  const double mean = mean_size(units);
  std::vector<double> begins = {1};
  double expected = mean, before = 0;
  while (expected < budget) {
    double next = 0;
    for (const auto& [size, share] : shares)
      if (size <= begins.size()) next += share * begins[begins.size() - size];
    begins.push_back(next);
    before = std::exchange(expected, expected + mean * next);
  }
  const auto enough = static_cast<int64_t>(begins.size());
  return enough == 1 || takes_higher(budget, before, expected, rounding) ? enough : enough - 1;
}

template <class AllRanked>
void choose_expected(const AllRanked& all, int64_t enough, std::vector<Unit>& chosen) {
  int64_t tokens = 0;
  for (const auto& one : all) {
    if (tokens > 0 && (tokens >= enough || std::isinf(one.turn))) return;
    chosen.push_back(one.unit);
    tokens += one.unit.size();
  }
}

template <class AllRanked>
void choose_fitting(const AllRanked& all, int64_t budget, std::vector<Unit>& chosen) {
  int64_t left = budget;
  for (const auto& one : all) {
    if (one.unit.size() > left) continue;
    chosen.push_back(one.unit);
    left -= one.unit.size();
  }
}

}  // namespace

/// Returns units with fewer words, so that a unit's mean size is the budget. Called if the budget is less than an
/// average unit.
std::vector<Unit> UnitSelector::shorter(std::vector<Unit> units, const MaskView& view, double budget,
                                        const MaskKey& key, double rounding) const {
  for (size_t most = units_->longest(); most > 1 && mean_size(units) > budget;) {
    std::vector<Unit> cut = units_->divide(view, key, --most);
    if (mean_size(cut) <= budget && takes_higher(budget, mean_size(cut), mean_size(units), rounding)) break;
    units = std::move(cut);
  }
  return units;
}

std::vector<UnitSelector::Ranked> UnitSelector::ranked(const MaskView& view, const MaskKey& key,
                                                       const std::vector<Unit>& units) const {
  std::vector<Ranked> all;
  for (const Unit& unit : units) {
    const uint64_t bits = keyed_bits(key, Purpose::mask_select, static_cast<size_t>(unit.begin), kOrder);
    all.push_back({0, bits, unit});
  }
  if (weights_)
    for (Ranked& one : all) {
      const double weight = weights_->of(view, one.unit);
      one.turn =
          weight > 0 ? -std::log1p(-uniform_of(one.bits)) / weight : std::numeric_limits<double>::infinity();
    }
  std::sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) {
    if (a.turn != b.turn) return a.turn < b.turn;
    return a.bits != b.bits ? a.bits < b.bits : a.unit.begin < b.unit.begin;
  });
  return all;
}

void UnitSelector::select(const MaskView& view, int64_t budget, const MaskKey& key,
                          std::vector<Unit>& chosen) const {
  if (view.tokens.empty()) return;
  const double rounding = uniform_of(keyed_bits(key, Purpose::mask_select, 0, kRound));
  const auto wanted = static_cast<double>(budget);
  std::vector<Unit> units = units_->divide(view, key, Units::kAnyLength);
  const bool scarce = fill_.rule == Fill::Rule::expected && mean_size(units) > wanted;
  if (scarce) units = shorter(std::move(units), view, wanted, key, rounding);
  const std::vector<Ranked> all = ranked(view, key, units);
  const size_t before = chosen.size();
  switch (fill_.rule) {
    case Fill::Rule::expected:
      choose_expected(all, scarce ? 1 : tokens_that_are_enough(units, wanted, rounding), chosen);
      break;
    case Fill::Rule::fitting:
      choose_fitting(all, budget, chosen);
      break;
    case Fill::Rule::each:
      for (const Ranked& one : all)
        if (uniform_of(one.bits) < fill_.share) chosen.push_back(one.unit);
      break;
    case Fill::Rule::number: {
      const double wanted = std::floor(fill_.share * static_cast<double>(all.size()) + rounding);
      for (size_t i = 0; i < all.size() && static_cast<double>(i) < wanted; ++i)
        chosen.push_back(all[i].unit);
    }
  }
  if (chosen.size() == before) chosen.push_back(all[0].unit);
}

}  // namespace funicular::objective
