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
  /// How much a row of each class counts in training, one a class; empty: 1 each. Then the loss is the weighted
  /// mean, as torch.nn.CrossEntropyLoss(weight) takes it.
  std::vector<double> class_weights = {};
  /// In training, the share of a row's weight that all classes get in equal parts (Szegedy et al., "Rethinking
  /// the Inception Architecture for Computer Vision", 2016, section 7): 0 .. 1, without 1.
  double label_smoothing = 0;
};

/// Batch: token_ids, token_type_ids [T], labels [S] (int64; float64 for regression). Count: `classification`
/// or `regression` = S, in training the sum of the rows' class weights. Evaluation weights and smooths nothing.
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
  std::unique_ptr<Metrics> metrics() const override;
  std::map<std::string, std::string> identity() const override;

 private:
  bool has_own_loss() const { return !options_.class_weights.empty() || options_.label_smoothing > 0; }
  ClassificationOptions options_;
  text::SequenceTemplate sequence_;
};

}  // namespace funicular::objective
