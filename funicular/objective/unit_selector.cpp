#include "funicular/objective/unit_selector.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace funicular::objective {

namespace {

/// The part of a unit that fits, cut after a word: at least its first word.
Unit cut_to(const Unit& unit, int64_t budget, const MaskView& view) {
  int32_t end = unit.begin;
  for (int32_t place = unit.begin + 1; place <= unit.end; ++place) {
    if (place < unit.end && !view.word_starts[static_cast<size_t>(place)]) continue;
    if (end > unit.begin && place - unit.begin > budget) break;
    end = place;
  }
  return {unit.begin, end};
}

/// By how many tokens a unit that reaches beyond the budget does so on the average: in a row of units with sizes s,
/// (E[s²] / E[s] - 1) / 2.
template <class AllRanked>
double mean_excess(const AllRanked& all) {
  double sum = 0, squares = 0;
  for (const auto& one : all) {
    const double size = one.unit.size();
    sum += size;
    squares += size * size;
  }
  return (squares / sum - 1) / 2;
}

template <class AllRanked>
void choose_expected(const AllRanked& all, int64_t budget, double rounding, bool divisible,
                     const MaskView& view, std::vector<Unit>& chosen) {
  if (divisible && all[0].unit.size() > budget) {
    chosen.push_back(cut_to(all[0].unit, budget, view));
    return;
  }
  const auto enough =
      static_cast<int64_t>(std::floor(static_cast<double>(budget) - mean_excess(all) + rounding));
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

std::vector<UnitSelector::Ranked> UnitSelector::ranked(const MaskView& view, const MaskKey& key) const {
  std::vector<Ranked> all;
  for (const Unit& unit : units_->divide(view, key)) {
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
  const std::vector<Ranked> all = ranked(view, key);
  const size_t before = chosen.size();
  const double rounding = uniform_of(keyed_bits(key, Purpose::mask_select, 0, kRound));
  switch (fill_.rule) {
    case Fill::Rule::expected:
      choose_expected(all, budget, rounding, units_->divisible(), view, chosen);
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
