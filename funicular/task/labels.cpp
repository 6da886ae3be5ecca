#include "funicular/task/labels.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "funicular/base/log.h"
#include "funicular/objective/metrics.h"
#include "funicular/objective/multi_label.h"
#include "funicular/task/calibration.h"
#include "funicular/task/column_facts.h"
#include "funicular/task/label_report.h"
#include "funicular/task/missing_values.h"
#include "funicular/task/row_answers.h"
#include "funicular/task/row_sheet.h"
#include "funicular/task/table_guess.h"

namespace funicular::task {

TaskType Labels::row() {
  TaskType row = row_of_tables<Labels>("labels");
  row.more = "--multi-label";
  row.gives = "any number of labels per text";
  row.answers = "A model of several labels per text gives them and the probabilities of all.";
  row.owns = objective::is_multi_label;
  row.suits = [](const ColumnFacts& labels) {
    return labels.lists > 0 || !labels.separator().empty() ? Suits::yes : Suits::no;
  };
  row.foreign = {"multi-label", "multilabel", "multi-label-classification"};
  return row;
}

std::string Labels::row_key(const std::string& bad_rows, const std::string& style) const {
  return fmt::format("{}{} sets by {}", bad_rows, style, files().separator());
}

MetricNames Labels::metrics(const std::vector<std::string>& /*labels*/) const {
  // The best metric needs no threshold, and weighs rare labels like frequent ones.
  return {objective::multi_label_metric_names(), "average_precision", "micro_f1"};
}

std::unique_ptr<objective::Objective> Labels::objective(const text::Tokenizer& tokenizer,
                                                        const format::ModelConfig& config,
                                                        const ObjectiveOptions& options) const {
  const Json note = config.source.value("funicular", Json::object());
  return std::make_unique<objective::MultiLabel>(
      tokenizer, objective::MultiLabelOptions{.sequence = sequence_of(options),
                                              .num_labels = config.num_labels,
                                              .labelled = options.labelled,
                                              .thresholds = objective::thresholds_in(note, config.num_labels),
                                              .soft = soft_labels(options)});
}

void Labels::check_training(const FileRows& rows) const {
  require_classes(rows, 1);
  require_known_labels(rows);
  TextTask::check_training(rows);
  refuse_measurements(rows);
}

void Labels::report_training(const FileRows& rows) const {
  warn_of_measurements(rows);
  report_classes(rows.store, rows.file);
  report_known_labels(rows.store);
  if (!files().shares.has_shares()) report_separator(rows.store, files().separator(), rows.file);
  warn_of_missing_labels(rows.store.meta().label_names, rows.file);
}

void Labels::report_evaluation(const std::vector<std::string>& labels, const model::Pretrained& model) const {
  if (!objective::thresholds_in(model.note().source, std::ssize(labels)).empty())
    log::info("labels are given from the thresholds of {} on", (model.path() / "config.json").string());
  if (files().shares.has_shares())
    log::info(
        "rows have a share of each label. The loss is the cross-entropy with the shares; the scores take "
        "shares "
        "above 0.5 as labels. Labels without a share count nothing");
}

void Labels::report_trained(const FileRows& evaluated) const {
  log::info(
      "the model's config.json keeps the threshold that was best for each label. evaluate and predict use "
      "these "
      "thresholds, and this training 0.5: the scores differ");
  constexpr int64_t kLeast = objective::MultiLabelMetrics::kLeastPositives;
  const std::vector<std::string>& labels = evaluated.store.meta().label_names;
  const std::vector<int64_t> rows = rows_of_classes(evaluated.store);
  std::vector<std::string> rare;
  for (size_t label = 0; label < rows.size(); ++label)
    if (rows[label] < kLeast) rare.push_back(labels.at(label));
  if (!rare.empty())
    log::info(
        "{} of {} labels keep the threshold 0.5, because fewer than {} of the evaluated rows have them: {}",
        rare.size(), rows.size(), kLeast, show_classes(rare));
}

namespace {

/// The least probability at which a label is predicted.
class Thresholds {
 public:
  Thresholds(const Json& note, size_t labels)
      : all_(objective::thresholds_in(note, static_cast<int64_t>(labels))) {
    if (note.contains(kThreshold)) asked_ = note[kThreshold].get<double>();
  }
  /// The model's own thresholds were found before its calibration, which moves them as it moves the probabilities.
  double of(int64_t label, double temperature) const {
    if (asked_) return *asked_;
    const double own = all_.empty() ? 0.5 : all_[static_cast<size_t>(label)];
    return temperature == 1 ? own : 1 / (1 + std::exp(-std::log(own / (1 - own)) / temperature));
  }

 private:
  std::vector<double> all_;
  std::optional<double> asked_;
};

class LabelSheet final : public ClassedSheet {
 public:
  LabelSheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels, const Json& note)
      : ClassedSheet(std::move(metrics), std::move(labels), temperature_in(note)),
        thresholds_(note, this->labels().size()) {}

 private:
  at::Tensor probabilities_of(const at::Tensor& logits) const override { return logits.sigmoid(); }
  at::Tensor logits_of(const at::Tensor& probabilities) const override {
    return probabilities.logit(/*eps=*/1e-15);
  }
  at::Tensor truths() const override {
    at::Tensor found = at::empty({rows(), columns()}, at::kDouble);
    for (int64_t row = 0; row < rows(); ++row)
      for (int64_t column = 0; column < columns(); ++column)
        found.data_ptr<double>()[row * columns() + column] =
            knows(row, column) ? static_cast<double>(has(row, column)) : truth(row, column);
    return found;
  }
  objective::Judged judged() const override {
    objective::Judged found;
    for (int64_t row = 0; row < rows(); ++row)
      for (int64_t column = 0; column < columns(); ++column) {
        if (!knows(row, column)) continue;
        found.confidence.push_back(score(row, column));
        found.truth.push_back(has(row, column));
      }
    return found;
  }
  bool may_abstain() const override { return false; }
  bool gives(int64_t row, int64_t column) const override {
    return score(row, column) >= thresholds_.of(column, temperature());
  }
  bool has(int64_t row, int64_t column) const override { return truth(row, column) > 0.5; }
  bool knows(int64_t row, int64_t column) const override { return !std::isnan(truth(row, column)); }
  double label_score(int64_t row) const override {
    double least = 1;
    for (int64_t column = 0; column < columns(); ++column)
      if (knows(row, column))
        least = std::min(least, has(row, column) ? score(row, column) : 1 - score(row, column));
    return least;
  }
  void add_confusion(OrderedJson& found) const override {
    OrderedJson& all = found["confusion_matrices"] = OrderedJson::object();
    for (int64_t column = 0; column < columns(); ++column) {
      std::array<std::array<int64_t, 2>, 2> counts{};
      for (int64_t row = 0; row < rows(); ++row)
        if (knows(row, column)) ++counts[has(row, column)][gives(row, column)];
      all[label(column)] = counts;
    }
  }
  void add_answer(int64_t row, OrderedJson& line) const override {
    OrderedJson truth = OrderedJson::array(), predicted = truth, unknown = truth;
    for (int64_t column = 0; column < columns(); ++column) {
      if (!knows(row, column)) unknown.push_back(label(column));
      if (has(row, column)) truth.push_back(label(column));
      if (gives(row, column)) predicted.push_back(label(column));
    }
    line["labels"] = truth;
    if (!unknown.empty()) line["unknown"] = unknown;
    line["predicted"] = predicted;
    add_probabilities(row, line);
  }

  Thresholds thresholds_;
};

class LabelAnswers final : public RowAnswers {
 public:
  LabelAnswers(std::vector<std::string> labels, const Json& note)
      : RowAnswers(std::move(labels)),
        thresholds_(note, this->labels().size()),
        temperature_(temperature_in(note)) {}

 private:
  at::Tensor scores(const at::Tensor& logits) const override {
    return cooled(logits, temperature_).sigmoid();
  }
  Answer answer_of(std::span<const float> scores) const override {
    Answer answer{.scores = {scores.begin(), scores.end()}};
    std::string given;
    for (int64_t label = 0; label < std::ssize(scores); ++label) {
      if (scores[static_cast<size_t>(label)] < thresholds_.of(label, temperature_)) continue;
      answer.labels.push_back(label);
      given += (given.empty() ? "" : ", ") + key(label);
    }
    answer.json = fmt::format("{{\"labels\": [{}], {}}}", given, probabilities(scores));
    return answer;
  }

  Thresholds thresholds_;
  double temperature_;
};

}  // namespace

std::unique_ptr<Sheet> Labels::sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                                     const Json& note) const {
  return std::make_unique<LabelSheet>(std::move(metrics), std::move(labels), note);
}

std::unique_ptr<Answers> Labels::answers_to_texts(std::vector<std::string> labels, const Json& note) const {
  return std::make_unique<LabelAnswers>(std::move(labels), note);
}

}  // namespace funicular::task
