#include "funicular/objective/distilled_answers.h"

#include <torch/types.h>

#include "funicular/objective/classification.h"
#include "funicular/objective/distillation.h"
#include "funicular/objective/regression.h"

namespace funicular::objective {

namespace {

/// Cross-entropy of the teacher's distribution.
at::Tensor soft_classes(const at::Tensor& logits, const at::Tensor& teacher, double temperature,
                        const at::Tensor& added) {
  at::Tensor theirs = (teacher.to(logits.scalar_type()) / temperature).softmax(1);
  if (added.defined()) theirs = theirs.masked_fill(added, 0);
  return -(theirs * (logits / temperature).log_softmax(1)).sum();
}

at::Tensor hard_classes(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum);
}

double number_of_classes(const format::ModelConfig& student) {
  return student.num_labels;
}

std::unique_ptr<Objective> classified_rows(const text::Tokenizer& tokenizer,
                                           const DistillationOptions& options) {
  return std::make_unique<Classification>(tokenizer,
                                          ClassificationOptions{.sequence = options.sequence,
                                                                .num_labels = options.student.num_labels,
                                                                .labelled = options.reads_logits()});
}

/// No rows are added to numbers (core/padded_batch.h).
at::Tensor soft_numbers(const at::Tensor& logits, const at::Tensor& teacher, double /*temperature*/,
                        const at::Tensor& /*added*/) {
  return (logits - teacher.to(logits.scalar_type())).square().sum();
}

at::Tensor hard_numbers(const at::Tensor& logits, const at::Tensor& labels) {
  return (logits.squeeze(1) - labels.to(logits.scalar_type())).square().sum();
}

double one_number(const format::ModelConfig& /*student*/) {
  return 1;
}

std::unique_ptr<Objective> measured_rows(const text::Tokenizer& tokenizer,
                                         const DistillationOptions& options) {
  return std::make_unique<Regression>(
      tokenizer, RegressionOptions{.sequence = options.sequence, .labelled = options.reads_logits()});
}

constexpr DistilledAnswers kClasses{soft_classes, hard_classes, number_of_classes, classified_rows};
constexpr DistilledAnswers kNumbers{soft_numbers, hard_numbers, one_number, measured_rows};

}  // namespace

const DistilledAnswers& distilled_answers(const format::ModelConfig& config) {
  return model::is_regression(config) ? kNumbers : kClasses;
}

}  // namespace funicular::objective
