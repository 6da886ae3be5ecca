#pragma once
// Classification of texts and pairs of texts, and regression.

#include "funicular/objective/objective.h"
#include "funicular/objective/sequence.h"

namespace funicular::objective {

struct ClassificationOptions {
  SequenceOptions sequence;
  int32_t num_labels = 2;   ///< labels are 0 .. num_labels - 1
  bool regression = false;  ///< labels are numbers; trained by squared error
  bool labelled = true;     ///< false: for prediction; no `labels`
};

/// Batch: token_ids, token_type_ids [T], labels [S] (int64; float64 for regression). Count: `classification`
/// or `regression` = S.
class Classification : public Objective {
 public:
  Classification(const text::WordPiece& tokenizer, const ClassificationOptions& options);
  /// Throws InputError naming the sample whose label is out of range.
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override;

 private:
  ClassificationOptions options_;
  text::SpecialTokens special_;
};

}  // namespace funicular::objective
