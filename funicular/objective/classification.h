#pragma once
// Classification: one class per text or pair of texts.

#include "funicular/objective/class_loss.h"
#include "funicular/objective/row_objective.h"
#include "funicular/objective/soft_labels.h"

namespace funicular::objective {

/// Options of Classification.
struct ClassificationOptions {
  SequenceOptions sequence;                      ///< longer rows are truncated
  int32_t num_labels = 2;                        ///< labels are 0 .. num_labels - 1
  bool labelled = true;                          ///< false: for prediction; no `labels`
  std::vector<std::string> metrics{"accuracy"};  ///< names of objective/metrics.h
  int64_t positive = 1;                          ///< the class of the metric f1
  ClassLoss loss = {};                           ///< weights of the classes and label smoothing, in training
  SoftLabels soft = {};                          ///< rows with shares or weights
};

/// Cross-entropy over the classes of a text or a pair of texts. Metrics: ClassificationOptions::metrics.
///
/// Batch: token_ids, token_type_ids [T], labels [S] int64. Count: `classification` = S, in training the sum of the
/// rows' class weights. Rows with shares also have the tensors of objective/soft_labels.h; their label is the
/// greatest share.
class Classification : public RowObjective {
 public:
  /// Copies what it needs of the tokeniser. Throws InputError for weights or a smoothing out of range, for a vocabulary
  /// without the special tokens, and for a length without room for text.
  Classification(const text::Tokenizer& tokenizer, const ClassificationOptions& options);
  /// Throws InputError naming the sample whose label is out of range.
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  /// model::Head::classification, with the loss of the options.
  model::Head head() const override;
  /// Throws InputError for a configuration with another number of classes, and for a regression.
  Model build(model::ModelOptions encoder) const override;
  /// The metrics that the options name.
  std::unique_ptr<Metrics> metrics() const override;
  /// LossOver::rows; a derived class declares its own.
  LossOver loss_over() const override { return of_class<Classification>(); }
  /// The settings that a resumed run must share.
  std::map<std::string, std::string> identity() const override;

 private:
  int64_t class_of(const data::Sample& sample) const;
  model::Head soft_head() const;

  ClassificationOptions options_;
};

}  // namespace funicular::objective
