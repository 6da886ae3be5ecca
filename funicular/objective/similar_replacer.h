#pragma once
// Similar words instead of [MASK], which no text holds (MacBERT: Cui et al. 2020, section 3.2).

#include <memory>

#include "funicular/objective/bert_replacer.h"
#include "funicular/objective/similar_words.h"

namespace funicular::objective {

/// Each word of a unit becomes, as a whole, a similar word of as many pieces with probability shares.mask, random tokens
/// with shares.random, and stays as it is otherwise. A word without a similar one becomes random tokens, and the report
/// counts it. Words are those of the view's word starts; without them each token is one.
class SimilarReplacer final : public Replacer {
 public:
  SimilarReplacer(std::shared_ptr<const SimilarWords> similar, RandomTokens random_tokens,
                  ReplacementShares shares = {});
  void replace(const MaskView& view, std::span<const Unit> chosen, const MaskKey& key,
               std::span<int32_t> input, ReplacementReport* report = nullptr) const override;

 private:
  void replace_word(const MaskView& view, Unit word, const MaskKey& key, std::span<int32_t> input,
                    ReplacementReport* report) const;
  std::shared_ptr<const SimilarWords> similar_;
  RandomTokens random_tokens_;
  ReplacementShares shares_;
};

}  // namespace funicular::objective
