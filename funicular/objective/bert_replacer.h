#pragma once
// BERT's replacement of masked tokens: each becomes [MASK] or a random token, or stays as it is.

#include <memory>
#include <vector>

#include "funicular/objective/masking.h"

namespace funicular::objective {

/// The tokens from which random tokens are drawn, all equally likely.
using RandomTokens = std::shared_ptr<const std::vector<int32_t>>;

/// Draws the random token of a place. It reads the last 64 bits of `block`, as the first 64 decide how the token is
/// replaced.
int32_t random_token(const std::vector<int32_t>& tokens, const RandomBlock& block);

/// Shares of the masked tokens; the rest stays as it is.
struct ReplacementShares {
  double mask = 0.8;    ///< shown as [MASK], or as a similar word
  double random = 0.1;  ///< shown as a random token
};

/// Throws InputError for a negative share and for a sum above 1.
void check_shares(const ReplacementShares& shares);

/// BERT's rule (Devlin et al. 2019, section 3.1): each chosen token becomes [MASK] with probability shares.mask, a
/// random token with shares.random, and stays as it is otherwise.
class BertReplacer : public Replacer {
 public:
  /// The tokens that share one decision: each token alone, each word (fairseq) or each unit (spans: Joshi et al.
  /// 2019, section 3.1).
  enum class Together { token, word, unit };

  /// Throws InputError for a `mask_token` below 0, for shares out of range, and if random tokens are wanted but
  /// `random_tokens` is empty.
  BertReplacer(int32_t mask_token, RandomTokens random_tokens, ReplacementShares shares = {},
               Together together = Together::token);
  void replace(const MaskView& view, std::span<const Unit> chosen, const MaskKey& key,
               std::span<int32_t> input, ReplacementReport* report = nullptr) const override;

 private:
  int32_t mask_token_;
  RandomTokens random_tokens_;
  ReplacementShares shares_;
  Together together_;
};

}  // namespace funicular::objective
