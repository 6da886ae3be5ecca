#include "funicular/objective/similar_replacer.h"

#include <algorithm>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::objective {

SimilarReplacer::SimilarReplacer(std::shared_ptr<const SimilarWords> similar, RandomTokens random_tokens,
                                 ReplacementShares shares)
    : similar_(std::move(similar)), random_tokens_(std::move(random_tokens)), shares_(shares) {
  check_shares(shares);
  if (!random_tokens_ || random_tokens_->empty())
    throw InputError("masking", "the vocabulary has no token that a text can hold; none can be shown");
}

void SimilarReplacer::replace_word(const MaskView& view, Unit word, const MaskKey& key,
                                   std::span<int32_t> input, ReplacementReport* report) const {
  const RandomKey random = make_key(key.seed, Purpose::mask_replace);
  const auto block_of = [&](int32_t place) {
    return philox(random, make_counter(0, static_cast<uint32_t>(place), key.draw));
  };
  const auto begin = static_cast<size_t>(word.begin), size = static_cast<size_t>(word.size());
  const RandomBlock block = block_of(word.begin);
  const double u = uniform(block);
  Shown shown = u < shares_.mask                    ? Shown::similar
                : u < shares_.mask + shares_.random ? Shown::random
                                                    : Shown::kept;
  if (shown == Shown::similar) {
    const std::span<const int32_t> others = similar_->of(view.tokens.subspan(begin, size));
    if (others.empty()) {
      shown = Shown::random;
    } else {
      const size_t chosen = uniform_below((uint64_t{block[2]} << 32) | block[3], others.size() / size);
      std::copy_n(others.begin() + static_cast<std::ptrdiff_t>(chosen * size), size,
                  input.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    if (report) {
      ++report->words;
      report->without_similar += others.empty();
    }
  }
  if (shown == Shown::random)
    for (int32_t i = word.begin; i < word.end; ++i)
      input[static_cast<size_t>(i)] = random_token(*random_tokens_, block_of(i));
  if (report) report->shown.insert(report->shown.end(), size, shown);
}

void SimilarReplacer::replace(const MaskView& view, std::span<const Unit> chosen, const MaskKey& key,
                              std::span<int32_t> input, ReplacementReport* report) const {
  for (const Unit& unit : chosen)
    for (int32_t begin = unit.begin; begin < unit.end;) {
      int32_t end = begin + 1;
      while (end < unit.end && !view.word_starts.empty() && !view.word_starts[static_cast<size_t>(end)])
        ++end;
      replace_word(view, {begin, end}, key, input, report);
      begin = end;
    }
}

}  // namespace funicular::objective
