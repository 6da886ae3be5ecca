#pragma once
// The task of a number for each text or pair of texts (regression).

#include "funicular/task/text_task.h"

namespace funicular::task {

class Numbers final : public TextTask {
 public:
  using TextTask::TextTask;
  static TaskType row();
  data::LabelKind label_kind() const override { return data::LabelKind::values; }
  bool weighs_rows() const override { return true; }
  std::string row_key(const std::string& bad_rows, const std::string& style) const override;
  MetricNames metrics(const std::vector<std::string>& labels) const override;
  std::unique_ptr<objective::Objective> objective(const text::Tokenizer& tokenizer,
                                                  const format::ModelConfig& config,
                                                  const ObjectiveOptions& options) const override;
  double diverged_at() const override;
  void describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const override;
  void report_training(const FileRows& /*rows*/) const override {}
  std::vector<std::string> labels_of(const format::ModelConfig& /*config*/,
                                     const fs::path& /*model*/) const override {
    return {};
  }
  bool scores_classes() const override { return false; }
  /// No details and no mistakes. Lines: {"row": 1, "label": …, "value": …}.
  std::unique_ptr<Sheet> sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                               const Json& note) const override;

 protected:
  ScoreKind score_kind() const override { return ScoreKind::number; }
  /// {"value": …}
  std::unique_ptr<Answers> answers_to_texts(std::vector<std::string> labels, const Json& note) const override;
  std::string problem_type() const override { return "regression"; }
};

}  // namespace funicular::task
