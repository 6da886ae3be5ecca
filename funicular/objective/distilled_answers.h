#pragma once
// The terms soft and hard, by which a student learns a teacher's answers to rows, for classes and for numbers.

#include <ATen/core/Tensor.h>

#include <memory>

#include "funicular/format/model_config.h"
#include "funicular/objective/objective.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

struct DistillationOptions;

struct DistilledAnswers {
  /// Sum over the rows, from the logits [S, classes] of student and teacher, without rows that are `added` [S, 1];
  /// undefined: none are.
  at::Tensor (*soft)(const at::Tensor& logits, const at::Tensor& teacher, double temperature,
                     const at::Tensor& added);
  /// Sum over the rows, from the student's logits and the rows' labels [S].
  at::Tensor (*hard)(const at::Tensor& logits, const at::Tensor& labels);
  /// The number of classes, for a mean over rows and classes.
  double (*classes)(const format::ModelConfig& student);
  /// Makes the rows' batches, and measures the answers.
  std::unique_ptr<Objective> (*rows)(const text::Tokenizer& tokenizer, const DistillationOptions& options);
};

/// The kind of answers of a model with this configuration: numbers for a regression, otherwise classes.
const DistilledAnswers& distilled_answers(const format::ModelConfig& config);

}  // namespace funicular::objective
