#pragma once
// Masking in two halves: which tokens to hide, and what to show instead.
//
// The caller keeps the budget, the special tokens (they are never in the view) and the labels.

#include <cstdint>
#include <span>
#include <vector>

#include "funicular/base/random.h"

namespace funicular::objective {

/// Places [begin, end) in a sequence.
struct Range {
  int32_t begin = 0, end = 0;
};

/// The maskable tokens of one sequence in order, special tokens left out; a place is an index into them.
struct MaskView {
  std::span<const int32_t> tokens;
  std::span<const uint8_t> word_starts;  ///< 1 where a word begins; the same size, or empty if unknown
};

/// Something hidden as a whole: a token, a word, a span.
using Unit = Range;

/// Keys of the choices of one sequence.
struct MaskKey {
  uint64_t seed = 0;
  uint64_t draw = 0;
};

/// Which units to hide: chooses until the budget of tokens is used up.
class Selector {
 public:
  virtual ~Selector() = default;
  /// `budget` >= 1 tokens; at least one unit is chosen if the view is not empty.
  virtual void select(const MaskView& view, int64_t budget, const MaskKey& key,
                      std::vector<Unit>& chosen) const = 0;
};

/// What to show at the chosen places: changes `input` (the same places as view.tokens).
class Replacer {
 public:
  virtual ~Replacer() = default;
  virtual void replace(const MaskView& view, std::span<const Unit> chosen, const MaskKey& key,
                       std::span<int32_t> input) const = 0;
};

/// Single tokens, all equally likely: those with the smallest u(place), u keyed by the place (no shuffle, so
/// that a choice does not depend on how many came before).
class TokenSelector : public Selector {
 public:
  void select(const MaskView& view, int64_t budget, const MaskKey& key,
              std::vector<Unit>& chosen) const override;
};

/// Whole words (all pieces of a word or none), in the order of u(first place); a word that no longer fits the
/// budget is passed over unless nothing has been chosen yet.
class WholeWordSelector : public Selector {
 public:
  void select(const MaskView& view, int64_t budget, const MaskKey& key,
              std::vector<Unit>& chosen) const override;
};

/// BERT's rule (Devlin et al. 2019, section 3.1): each chosen token becomes [MASK] with probability
/// mask_share, a uniformly random token with random_share, and stays as it is otherwise.
class BertReplacer : public Replacer {
 public:
  BertReplacer(int32_t mask_token, int32_t vocabulary_size, double mask_share = 0.8,
               double random_share = 0.1);
  void replace(const MaskView& view, std::span<const Unit> chosen, const MaskKey& key,
               std::span<int32_t> input) const override;

 private:
  int32_t mask_token_, vocabulary_size_;
  double mask_share_, random_share_;
};

}  // namespace funicular::objective
