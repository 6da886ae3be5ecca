#pragma once
// Classification of texts and pairs of texts, and regression.

#include "funicular/objective/objective.h"
#include "funicular/objective/sequence.h"

namespace funicular::objective {

struct ClassificationOptions {
  SequenceOptions sequence;
  int32_t num_labels = 2;                        ///< labels are 0 .. num_labels - 1
  bool regression = false;                       ///< labels are numbers; trained by squared error
  bool labelled = true;                          ///< false: for prediction; no `labels`
  std::vector<std::string> metrics{"accuracy"};  ///< names of objective/metrics.h
};

/// Batch: token_ids, token_type_ids [T], labels [S] (int64; float64 for regression). Count: `classification`
/// or `regression` = S.
class Classification : public Objective {
 public:
  Classification(const text::Tokenizer& tokenizer, const ClassificationOptions& options);
  /// Throws InputError naming the sample whose label is out of range.
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override;
  /// Each row is one.
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  model::Head head() const override { return model::Head::classification; }
  std::unique_ptr<Metrics> metrics() const override;
  std::map<std::string, std::string> identity() const override;

 private:
  ClassificationOptions options_;
  text::SequenceTemplate sequence_;
};

}  // namespace funicular::objective
