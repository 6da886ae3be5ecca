#include "funicular/task/numbers.h"

#include <fmt/format.h>

#include "funicular/core/loss_watch.h"
#include "funicular/model/heads.h"
#include "funicular/objective/metrics.h"
#include "funicular/objective/regression.h"
#include "funicular/task/column_facts.h"
#include "funicular/task/label_report.h"
#include "funicular/task/row_answers.h"
#include "funicular/task/row_sheet.h"
#include "funicular/task/table_guess.h"

namespace funicular::task {

namespace {

Suits numbers_suit(const ColumnFacts& labels) {
  const bool few = !labels.many_values && labels.values.size() <= kMostGrades;
  if (!labels.all_numbers()) return labels.mostly_numbers() && !few ? Suits::perhaps : Suits::no;
  if (labels.fractions > 0) return few ? Suits::perhaps : Suits::yes;
  return few ? Suits::no : Suits::perhaps;
}

}  // namespace

TaskType Numbers::row() {
  TaskType row = row_of_tables<Numbers>("numbers");
  row.more = "--regression";
  row.gives = "a number per text";
  row.answers = "A regression model gives its value.";
  row.is_distilled = true;
  row.owns = model::is_regression;
  row.suits = numbers_suit;
  row.foreign = {"regression"};
  return row;
}

std::string Numbers::row_key(const std::string& bad_rows, const std::string& style) const {
  return bad_rows + " numbers" + style;
}

MetricNames Numbers::metrics(const std::vector<std::string>& /*labels*/) const {
  return {objective::regression_metric_names(), "pearson"};
}

std::unique_ptr<objective::Objective> Numbers::objective(const text::Tokenizer& tokenizer,
                                                         const format::ModelConfig& /*config*/,
                                                         const ObjectiveOptions& options) const {
  return std::make_unique<objective::Regression>(
      tokenizer,
      objective::RegressionOptions{
          .sequence = sequence_of(options), .labelled = options.labelled, .soft = soft_labels(options)});
}

double Numbers::diverged_at() const {
  return LossWatch::kGrowthOfSquares;
}

void Numbers::describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const {
  TextTask::describe_in(config, labels);
  config.num_labels = 1;
}

namespace {

class NumberSheet final : public RowSheet {
 public:
  using RowSheet::RowSheet;
  void add_details(OrderedJson& /*found*/) const override {}
  OrderedJson mistakes(const EvaluatedRows& /*rows*/) const override { return OrderedJson::array(); }

 private:
  at::Tensor scores_of(const at::Tensor& logits) const override { return logits; }
  void add_answer(int64_t row, OrderedJson& line) const override {
    line["label"] = truth(row);
    line["value"] = score(row, 0);
  }
};

class NumberAnswers final : public RowAnswers {
 public:
  using RowAnswers::RowAnswers;
  int64_t width() const override { return 1; }

 private:
  at::Tensor scores(const at::Tensor& logits) const override { return logits; }
  Answer answer_of(std::span<const float> scores) const override {
    return {fmt::format("{{\"value\": {:.6g}}}", scores[0]), {}, {scores[0]}};
  }
};

}  // namespace

std::unique_ptr<Sheet> Numbers::sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                                      const Json& /*note*/) const {
  return std::make_unique<NumberSheet>(std::move(metrics), std::move(labels));
}

std::unique_ptr<Answers> Numbers::answers_to_texts(std::vector<std::string> labels,
                                                   const Json& /*note*/) const {
  return std::make_unique<NumberAnswers>(std::move(labels));
}

}  // namespace funicular::task
