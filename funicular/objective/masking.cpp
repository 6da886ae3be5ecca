#include "funicular/objective/masking.h"

#include "funicular/base/error.h"

#include <algorithm>
#include <utility>

namespace funicular::objective {

namespace {

/// 64 bits for the choice of place `place`.
uint64_t choice(const MaskKey& key, Purpose purpose, size_t place) {
  const RandomBlock block =
      philox(make_key(key.seed, purpose), make_counter(0, static_cast<uint32_t>(place), key.draw));
  return (uint64_t{block[0]} << 32) | block[1];
}

using Ranked = std::vector<std::pair<uint64_t, Unit>>;

void sort_by_choice(Ranked& ranked) {
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.begin < b.second.begin;
  });
}

}  // namespace

void TokenSelector::select(const MaskView& view, int64_t budget, const MaskKey& key,
                           std::vector<Unit>& chosen) const {
  Ranked ranked;
  ranked.reserve(view.tokens.size());
  for (size_t i = 0; i < view.tokens.size(); ++i)
    ranked.push_back(
        {choice(key, Purpose::mask_select, i), {static_cast<int32_t>(i), static_cast<int32_t>(i) + 1}});
  sort_by_choice(ranked);
  const size_t count = std::min(ranked.size(), static_cast<size_t>(budget));
  for (size_t i = 0; i < count; ++i) chosen.push_back(ranked[i].second);
}

void WholeWordSelector::select(const MaskView& view, int64_t budget, const MaskKey& key,
                               std::vector<Unit>& chosen) const {
  if (view.word_starts.size() != view.tokens.size())
    throw InputError("masking",
                     "whole-word masking needs a word-start mark for each of the {} tokens, found {}",
                     view.tokens.size(), view.word_starts.size());
  Ranked ranked;
  for (size_t begin = 0; begin < view.tokens.size();) {
    size_t end = begin + 1;
    while (end < view.tokens.size() && !view.word_starts[end]) ++end;
    ranked.push_back(
        {choice(key, Purpose::mask_select, begin), {static_cast<int32_t>(begin), static_cast<int32_t>(end)}});
    begin = end;
  }
  sort_by_choice(ranked);
  int64_t left = budget;
  for (const auto& [u, word] : ranked) {
    const int64_t size = word.end - word.begin;
    if (size > left && !chosen.empty()) continue;
    chosen.push_back(word);
    left -= size;
    if (left <= 0) break;
  }
}

BertReplacer::BertReplacer(int32_t mask_token, int32_t vocabulary_size, double mask_share,
                           double random_share)
    : mask_token_(mask_token),
      vocabulary_size_(vocabulary_size),
      mask_share_(mask_share),
      random_share_(random_share) {
  if (mask_token < 0 || mask_token >= vocabulary_size)
    throw InputError("masking", "the vocabulary has no [MASK] token; masked language modelling needs one");
  if (!(mask_share >= 0 && random_share >= 0 && mask_share + random_share <= 1))
    throw InputError("masking",
                     "expected shares of masked and random tokens with a sum of at most 1, found {} and {}",
                     mask_share, random_share);
}

void BertReplacer::replace(const MaskView&, std::span<const Unit> chosen, const MaskKey& key,
                           std::span<int32_t> input) const {
  const RandomKey random = make_key(key.seed, Purpose::mask_replace);
  for (const Unit& unit : chosen)
    for (int32_t i = unit.begin; i < unit.end; ++i) {
      const RandomBlock block = philox(random, make_counter(0, static_cast<uint32_t>(i), key.draw));
      const double u = uniform(block);
      int32_t& token = input[static_cast<size_t>(i)];
      if (u < mask_share_)
        token = mask_token_;
      else if (u < mask_share_ + random_share_)
        token = static_cast<int32_t>(
            uniform_below((uint64_t{block[2]} << 32) | block[3], static_cast<uint64_t>(vocabulary_size_)));
    }
}

}  // namespace funicular::objective
