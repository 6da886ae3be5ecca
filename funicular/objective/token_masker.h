#pragma once
// Masks tokens of packed sequences and keeps the original tokens as labels, for all objectives with masked tokens.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/data/sample.h"
#include "funicular/objective/chinese_words.h"
#include "funicular/objective/masking.h"
#include "funicular/objective/masking_options.h"
#include "funicular/objective/sequence.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

class TokenMasker {
 public:
  /// Reads the files that the options name. Throws InputError without [MASK], for shares out of range, and for
  /// options that exclude each other.
  TokenMasker(const text::Tokenizer& tokenizer, const MaskedLmOptions& options);

  /// Masks tokens of the last sequence in `packed`, which begins at `begin` and was made from `sample`.
  void mask(PackedSequences& packed, size_t begin, const data::Sample& sample, uint64_t seed);
  /// Adds `mlm_rows` [M] (rows of the packed batch, ascending), `mlm_labels` [M] and the count `mlm` to the batch.
  /// They cover all sequences masked since the last call.
  void finish(MicroBatch& batch);

  /// Key of a sample's random choices, besides the seed: its draw or, for static masks, the sample and the number of
  /// its mask.
  static uint64_t key_of(const data::Sample& sample, const MaskedLmOptions& options);

  /// Description for Objective::identity.
  static std::string describe(const MaskedLmOptions& options) { return describe_masking(options); }

 private:
  MaskedLmOptions options_;
  text::SpecialTokens special_;
  std::shared_ptr<const ChineseWords> chinese_words_;  ///< null: without a dictionary
  std::shared_ptr<const Selector> selector_;
  std::shared_ptr<const Replacer> replacer_;
  std::vector<int64_t> rows_, labels_;
};

}  // namespace funicular::objective
