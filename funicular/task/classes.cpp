#include "funicular/task/classes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/model/class_names.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/classification.h"
#include "funicular/task/calibration.h"
#include "funicular/task/column_facts.h"
#include "funicular/task/label_report.h"
#include "funicular/task/missing_values.h"
#include "funicular/task/row_answers.h"
#include "funicular/task/row_sheet.h"
#include "funicular/task/table_guess.h"

namespace funicular::task {

namespace {

/// Many numbers, or numbers with a fraction, suggest a regression. A few cells may be missing values, such as
/// "unknown".
Suits classes_suit(const ColumnFacts& labels) {
  if (labels.many_values || labels.lists > 0 || !labels.separator().empty()) return Suits::no;
  const bool few = labels.values.size() <= kMostGrades;
  if (!labels.all_numbers()) return labels.mostly_numbers() && !few ? Suits::no : Suits::yes;
  if (labels.fractions == 0) return few ? Suits::yes : Suits::perhaps;
  return few ? Suits::perhaps : Suits::no;
}

}  // namespace

TaskType Classes::row() {
  TaskType row = row_of_tables<Classes>("classes");
  row.gives = "one class per text";
  row.answers =
      "A classifier gives the label, its probability as score, and the probabilities of all labels.";
  row.example = {"classify texts", "--train train.tsv --eval eval.tsv --output runs/a"};
  row.is_distilled = true;
  row.owns = [](const format::ModelConfig&) { return true; };
  row.suits = classes_suit;
  row.foreign = {"classification",
                 "text-classification",
                 "sequence-classification",
                 "sentiment",
                 "sentiment-analysis",
                 "imdb",
                 "ag-news",
                 "yelp",
                 "multiclass"};
  return row;
}

MetricNames Classes::metrics(const std::vector<std::string>& /*labels*/) const {
  if (named()) return {named()->metrics, named()->metrics.front()};
  return {{"accuracy", "macro_f1"}, "accuracy"};
}

std::unique_ptr<objective::Objective> Classes::objective(const text::Tokenizer& tokenizer,
                                                         const format::ModelConfig& config,
                                                         const ObjectiveOptions& options) const {
  // The second class of a named task is the one whose F1 is measured.
  const std::vector<std::string>& own = label_names();
  const auto second = own.size() == 2 ? std::find(options.labels.begin(), options.labels.end(), own[1])
                                      : options.labels.end();
  const int64_t positive = second == options.labels.end() ? 1 : second - options.labels.begin();
  return std::make_unique<objective::Classification>(
      tokenizer, objective::ClassificationOptions{.sequence = sequence_of(options),
                                                  .num_labels = config.num_labels,
                                                  .labelled = options.labelled,
                                                  .metrics = metrics({}).all,
                                                  .positive = positive,
                                                  .loss = options.loss,
                                                  .soft = soft_labels(options)});
}

void Classes::check_training(const FileRows& rows) const {
  require_classes(rows, 2);
  TextTask::check_training(rows);
  refuse_measurements(rows);
}

void Classes::report_training(const FileRows& rows) const {
  warn_of_measurements(rows);
  report_classes(rows.store, rows.file);
  if (files().shares.has_shares())
    log::info("rows have a share of each class; above, a row counts for its greatest share");
  warn_of_missing_labels(rows.store.meta().label_names, rows.file);
  if (!files().header.value_or(true))
    warn_of_header_row(rows.store, rows.store.meta().label_names, rows.file);
}

void Classes::report_evaluation(const std::vector<std::string>& /*labels*/,
                                const model::Pretrained& /*model*/) const {
  if (files().shares.has_shares())
    log::info(
        "rows have a share of each class. The loss is the cross-entropy with the shares; the scores take "
        "each "
        "row's greatest share as its label");
}

std::vector<std::string> Classes::labels_of(const format::ModelConfig& config, const fs::path& model) const {
  const std::vector<std::string>& wanted = label_names();
  const std::vector<std::string> own = model::spelt_as(model::class_names(config), wanted);
  if (wanted.empty()) return own;
  if (own.size() != wanted.size())
    throw InputError("task", "{} has {} classes ({}); {} needs {} ({})", model.string(), own.size(),
                     fmt::join(own, ", "), name(), wanted.size(), fmt::join(wanted, ", "));
  if (std::is_permutation(own.begin(), own.end(), wanted.begin())) return own;
  if (own.front().rfind("LABEL_", 0) != 0)
    log::warning("the model calls its classes {}; they are taken for {}, in this order", fmt::join(own, ", "),
                 fmt::join(wanted, ", "));
  return wanted;
}

namespace {

int64_t best_of(std::span<const float> scores) {
  return std::max_element(scores.begin(), scores.end()) - scores.begin();
}

class ClassSheet final : public ClassedSheet {
 public:
  using ClassedSheet::ClassedSheet;

 private:
  at::Tensor probabilities_of(const at::Tensor& logits) const override { return at::softmax(logits, -1); }
  at::Tensor logits_of(const at::Tensor& probabilities) const override {
    return probabilities.clamp_min(std::numeric_limits<double>::min()).log();
  }
  at::Tensor truths() const override {
    at::Tensor found = at::empty({rows()}, at::kLong);
    for (int64_t row = 0; row < rows(); ++row)
      found.data_ptr<int64_t>()[row] = static_cast<int64_t>(truth(row));
    return found;
  }
  objective::Judged judged() const override {
    objective::Judged found;
    for (int64_t row = 0; row < rows(); ++row) {
      found.confidence.push_back(score(row, best(row)));
      found.truth.push_back(has(row, best(row)));
    }
    return found;
  }
  bool may_abstain() const override { return true; }
  int64_t best(int64_t row) const {
    int64_t best = 0;
    for (int64_t column = 1; column < columns(); ++column)
      if (score(row, column) > score(row, best)) best = column;
    return best;
  }
  bool gives(int64_t row, int64_t column) const override { return best(row) == column; }
  bool has(int64_t row, int64_t column) const override { return truth(row) == static_cast<double>(column); }
  double label_score(int64_t row) const override { return score(row, static_cast<int64_t>(truth(row))); }
  void add_confusion(OrderedJson& found) const override {
    const auto size = static_cast<size_t>(columns());
    std::vector<std::vector<int64_t>> counts(size, std::vector<int64_t>(size));
    for (int64_t row = 0; row < rows(); ++row)
      ++counts.at(static_cast<size_t>(truth(row))).at(static_cast<size_t>(best(row)));
    found["confusion_matrix"] = counts;
  }
  void add_answer(int64_t row, OrderedJson& line) const override {
    line["label"] = label(static_cast<int64_t>(truth(row)));
    line["predicted"] = label(best(row));
    line["score"] = score(row, best(row));
    add_probabilities(row, line);
  }
};

class ClassAnswers final : public RowAnswers {
 public:
  ClassAnswers(std::vector<std::string> labels, const Json& note)
      : RowAnswers(std::move(labels)),
        temperature_(temperature_in(note)),
        abstain_(note.value(kAbstain, 0.0)) {}

 private:
  at::Tensor scores(const at::Tensor& logits) const override {
    return at::softmax(cooled(logits, temperature_), -1);
  }
  Answer answer_of(std::span<const float> scores) const override {
    const int64_t label = best_of(scores);
    const float score = scores[static_cast<size_t>(label)];
    const bool answers = score >= abstain_;
    Answer answer{fmt::format("{{\"label\": {}, \"score\": {:.6g}, {}}}", answers ? key(label) : "null",
                              score, probabilities(scores))};
    if (answers) answer.labels = {label};
    answer.scores = {scores.begin(), scores.end()};
    return answer;
  }

  double temperature_, abstain_;
};

}  // namespace

std::unique_ptr<Sheet> Classes::sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                                      const Json& note) const {
  return std::make_unique<ClassSheet>(std::move(metrics), std::move(labels), temperature_in(note));
}

std::unique_ptr<Answers> Classes::answers_to_texts(std::vector<std::string> labels, const Json& note) const {
  return std::make_unique<ClassAnswers>(std::move(labels), note);
}

}  // namespace funicular::task
