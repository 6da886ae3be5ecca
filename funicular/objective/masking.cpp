#include "funicular/objective/masking.h"

#include "funicular/base/error.h"

namespace funicular::objective {

uint64_t keyed_bits(const MaskKey& key, Purpose purpose, size_t place, uint32_t index) {
  const RandomBlock block =
      philox(make_key(key.seed, purpose), make_counter(index, static_cast<uint32_t>(place), key.draw));
  return (uint64_t{block[0]} << 32) | block[1];
}

std::vector<Unit> words_of(const MaskView& view) {
  if (view.word_starts.size() != view.tokens.size())
    throw InputError("masking",
                     "whole-word masking needs a word-start mark for each of the {} tokens, found {}",
                     view.tokens.size(), view.word_starts.size());
  std::vector<Unit> words;
  for (size_t begin = 0; begin < view.tokens.size();) {
    size_t end = begin + 1;
    while (end < view.tokens.size() && !view.word_starts[end] && !begins_text(view, end)) ++end;
    words.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end)});
    begin = end;
  }
  return words;
}

}  // namespace funicular::objective
