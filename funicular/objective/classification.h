#pragma once
// Classification of texts and pairs of texts, and regression.

#include "funicular/objective/class_loss.h"
#include "funicular/objective/objective.h"
#include "funicular/objective/sequence.h"

namespace funicular::objective {

struct ClassificationOptions {
  SequenceOptions sequence;
  int32_t num_labels = 2;                        ///< labels are 0 .. num_labels - 1
  bool regression = false;                       ///< labels are numbers; trained by squared error
  bool labelled = true;                          ///< false: for prediction; no `labels`
  std::vector<std::string> metrics{"accuracy"};  ///< names of objective/metrics.h
  int64_t positive = 1;                          ///< the class whose F1 the metric f1 is
  ClassLoss loss = {};                           ///< of classes, not of regression
};

/// Batch: token_ids, token_type_ids [T], labels [S] (int64; float64 for regression). Count: `classification`
/// or `regression` = S, in training the sum of the rows' class weights.
class Classification : public Objective {
 public:
  /// Throws InputError for weights or a smoothing out of range.
  Classification(const text::Tokenizer& tokenizer, const ClassificationOptions& options);
  /// Throws InputError naming the sample whose label is out of range.
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override;
  /// Each row is one.
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  model::Head head() const override;
  /// Throws InputError for a configuration with another number of classes, and for one of classes where numbers are
  /// learnt, or the reverse.
  Model build(model::ModelOptions encoder) const override;
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<Classification>(); }
  std::map<std::string, std::string> identity() const override;

 private:
  ClassificationOptions options_;
  text::SequenceTemplate sequence_;
  OwnStores own_stores_;
};

}  // namespace funicular::objective
