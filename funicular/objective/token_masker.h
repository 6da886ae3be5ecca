#pragma once
// Hides tokens of packed sequences and keeps what stood there: what every objective of masked tokens shares.

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
  /// Reads the files that the options name. Throws InputError without [MASK], for shares out of range, and for options
  /// that do not go together.
  TokenMasker(const text::Tokenizer& tokenizer, const MaskedLmOptions& options);

  /// Hides tokens of the sequence that begins at `begin` and is the last in `packed`; `sample` is what it was
  /// made of.
  void mask(PackedSequences& packed, size_t begin, const data::Sample& sample, uint64_t seed);
  /// Puts `mlm_rows` [M] (rows of the packed batch, ascending) and `mlm_labels` [M] into the batch, and the
  /// count `mlm`, for all sequences that were masked since the last call.
  void finish(MicroBatch& batch);

  /// Key of the choices of a sample, besides the seed: its draw or, for static masks, the sample and the
  /// number of its mask.
  static uint64_t key_of(const data::Sample& sample, const MaskedLmOptions& options);

  /// In words, for Objective::identity.
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
