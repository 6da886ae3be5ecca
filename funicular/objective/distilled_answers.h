#pragma once
// How a student learns a teacher's answers to rows: the terms soft and hard for classes and for numbers.

#include <ATen/core/Tensor.h>

#include <memory>

#include "funicular/format/model_config.h"
#include "funicular/objective/objective.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

struct DistillationOptions;

struct DistilledAnswers {
  /// Sum over the rows, from the logits [S, classes] of student and teacher.
  at::Tensor (*soft)(const at::Tensor& logits, const at::Tensor& teacher, double temperature);
  /// Sum over the rows, from the student's logits and the rows' labels [S].
  at::Tensor (*hard)(const at::Tensor& logits, const at::Tensor& labels);
  /// The classes that a mean over rows and classes divides by.
  double (*classes)(const format::ModelConfig& student);
  /// Makes the rows' batches, and measures the answers.
  std::unique_ptr<Objective> (*rows)(const text::Tokenizer& tokenizer, const DistillationOptions& options);
};

/// The answers that a model of this configuration gives: numbers if it is a regression, otherwise classes.
const DistilledAnswers& distilled_answers(const format::ModelConfig& config);

}  // namespace funicular::objective
