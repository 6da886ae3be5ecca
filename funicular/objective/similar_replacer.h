#pragma once
// Similar words instead of [MASK], which no text holds (MacBERT: Cui et al. 2020, section 3.2).

#include <memory>

#include "funicular/objective/bert_replacer.h"
#include "funicular/objective/similar_words.h"

namespace funicular::objective {

/// Replaces each word of a unit as a whole. With probability shares.mask it becomes a similar word of as many pieces,
/// with shares.random random tokens; otherwise it stays. If a word has no similar word, it becomes random tokens, and
/// the report counts it. The view's word starts give the words; without them each token is a word.
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
