#pragma once
// Hides tokens of packed sequences and keeps what stood there: what every objective of masked tokens shares.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/data/sample.h"
#include "funicular/objective/masking.h"
#include "funicular/objective/sequence.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

struct MaskedLmOptions {
  SequenceOptions sequence;
  double probability =
      0.15;  ///< share of the tokens of a sequence to predict, special tokens not counted; at least one
  double mask_share = 0.8;    ///< of these become [MASK]
  double random_share = 0.1;  ///< of these become a random token; the rest stay
  bool whole_words = false;   ///< hide words instead of single pieces; the budget stays in tokens
  /// 0: a sample is masked anew whenever it is met. N: in N ways, which come again every N epochs, as in the data
  /// of the first BERT (Devlin et al. 2019; 10 there).
  int64_t static_masks = 0;
};

class TokenMasker {
 public:
  /// Throws InputError without [MASK], and for shares out of range.
  TokenMasker(const text::Tokenizer& tokenizer, const MaskedLmOptions& options);

  /// Hides tokens of the sequence that begins at `begin` and is the last in `packed`; `sample` is what it was
  /// made of.
  void mask(PackedSequences& packed, size_t begin, const data::Sample& sample, uint64_t seed);
  /// Puts `mlm_rows` [M] (rows of the packed batch, ascending) and `mlm_labels` [M] into the batch, and the
  /// count `mlm`, for all sequences that were masked since the last call.
  void finish(MicroBatch& batch);

  /// What the choices of a sample are keyed by, besides the seed: its draw or, of static masks, the sample and
  /// which of its ways.
  static uint64_t key_of(const data::Sample& sample, const MaskedLmOptions& options);

  /// In words, for Objective::identity.
  static std::string describe(const MaskedLmOptions& options);

 private:
  MaskedLmOptions options_;
  std::shared_ptr<const Selector> selector_;
  std::shared_ptr<const Replacer> replacer_;
  std::vector<int64_t> rows_, labels_;
};

}  // namespace funicular::objective
