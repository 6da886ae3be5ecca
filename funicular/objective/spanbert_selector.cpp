#include "funicular/objective/spanbert_selector.h"

#include <algorithm>
#include <utility>

namespace funicular::objective {

void SpanBertSelector::select(const MaskView& view, int64_t budget, const MaskKey& key,
                              std::vector<Unit>& chosen) const {
  const std::vector<Unit> words = words_of(view);
  std::vector<size_t> word_of(view.tokens.size());
  for (size_t word = 0; word < words.size(); ++word)
    for (int32_t i = words[word].begin; i < words[word].end; ++i) word_of[static_cast<size_t>(i)] = word;
  std::vector<std::pair<uint64_t, size_t>> anchors;
  for (size_t place = 0; place < view.tokens.size(); ++place)
    anchors.push_back({keyed_bits(key, Purpose::mask_select, place, kOrder), place});
  std::sort(anchors.begin(), anchors.end());

  std::vector<uint8_t> hidden(view.tokens.size());
  int64_t left = budget;
  for (const auto& [bits, anchor] : anchors) {
    if (left == 0) break;
    if (hidden[anchor]) continue;
    const size_t first = word_of[anchor], last = first + lengths_.words_at(key, anchor);
    for (size_t word = first; word < std::min(last, words.size()); ++word) {
      if (word > first && begins_text(view, static_cast<size_t>(words[word].begin))) break;
      for (int32_t i = words[word].begin; i < words[word].end && left > 0; ++i)
        if (!std::exchange(hidden[static_cast<size_t>(i)], uint8_t{1})) --left;
    }
  }
  for (size_t i = 0; i < hidden.size(); ++i) {
    if (!hidden[i]) continue;
    if (i == 0 || !hidden[i - 1] || begins_text(view, i))
      chosen.push_back({static_cast<int32_t>(i), static_cast<int32_t>(i)});
    ++chosen.back().end;
  }
}

}  // namespace funicular::objective
