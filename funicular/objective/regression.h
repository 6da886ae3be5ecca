#pragma once
// Regression: a number per text or pair of texts, trained with the squared error.

#include "funicular/objective/row_objective.h"
#include "funicular/objective/soft_labels.h"

namespace funicular::objective {

struct RegressionOptions {
  SequenceOptions sequence;
  bool labelled = true;  ///< false: for prediction; no `labels`
  SoftLabels soft = {};  ///< weights alone
};

/// Batch: token_ids, token_type_ids [T], labels [S] float64. Count: `regression` = S, in training the sum
/// of the rows' weights.
class Regression : public RowObjective {
 public:
  Regression(const text::Tokenizer& tokenizer, const RegressionOptions& options);
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  model::Head head() const override;
  /// Throws InputError for a configuration with classes.
  Model build(model::ModelOptions encoder) const override;
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<Regression>(); }
  std::map<std::string, std::string> identity() const override;

 private:
  bool labelled_;
  SoftLabels soft_;
};

}  // namespace funicular::objective
