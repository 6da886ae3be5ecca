#pragma once
// Multi-label classification of texts and pairs of texts (transformers' problem_type multi_label_classification). The
// model decides on every label by itself, trained with binary cross-entropy.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/objective/row_objective.h"
#include "funicular/objective/soft_labels.h"

namespace funicular::objective {

/// Key of the thresholds in Metrics::kept and in config.json's note: a list with one threshold per label.
inline constexpr const char* kThresholds = "thresholds";

struct MultiLabelOptions {
  SequenceOptions sequence;
  int32_t num_labels = 2;
  bool labelled = true;  ///< false: for prediction; no `labels`
  /// The least probability at which a label is predicted, one per label; empty: 0.5 for all.
  std::vector<double> thresholds = {};
  SoftLabels soft = {};
};

/// Batch: token_ids, token_type_ids [T], labels [S, num_labels] float64, 0 or 1. Count: `multi_label` = S *
/// num_labels, so that the loss is the mean over all labels, as in transformers. For rows with soft labels, `labels`
/// has their shares. An unknown share is NaN and does not count (objective/soft_labels.h).
class MultiLabel : public RowObjective {
 public:
  /// Throws InputError if the number of thresholds is not num_labels, and for a threshold outside of 0..1.
  MultiLabel(const text::Tokenizer& tokenizer, const MultiLabelOptions& options);
  /// Throws InputError naming the sample whose label is out of range.
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  /// BertForSequenceClassification's weights. Loss term `multi_label`. Outputs: `logits`, `labels`.
  model::Head head() const override {
    return model::with_classes(loss_of_all_labels(options_.soft), options_.num_labels);
  }
  /// Throws InputError for a configuration with another number of labels.
  Model build(model::ModelOptions encoder) const override {
    model::require_classes(encoder.config, options_.num_labels);
    return Objective::build(std::move(encoder));
  }
  /// See multi_label_metric_names. Keeps for each label the threshold with the greatest F1 on the evaluated rows. A
  /// label with few positive rows keeps 0.5 (MultiLabelMetrics::kept).
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<MultiLabel>(); }
  std::map<std::string, std::string> identity() const override;
  static model::Head loss_of_all_labels(const SoftLabels& soft = {});

 private:
  MultiLabelOptions options_;
};

/// Whether the configuration describes a model with any number of labels per text.
bool is_multi_label(const format::ModelConfig& config);

/// Reads the thresholds in `note` (config.json's key "funicular"); empty if it has none. Throws InputError for
/// thresholds that do not fit `labels` labels.
std::vector<double> thresholds_in(const Json& note, int64_t labels);

}  // namespace funicular::objective
