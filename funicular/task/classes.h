#pragma once
// The task of one class per text or pair of texts.

#include "funicular/task/text_task.h"

namespace funicular::task {

class Classes final : public TextTask {
 public:
  using TextTask::TextTask;
  static TaskType row();
  data::LabelKind label_kind() const override {
    return files().shares.has_shares() ? data::LabelKind::shares : data::LabelKind::classes;
  }
  MetricNames metrics(const std::vector<std::string>& labels) const override;
  std::unique_ptr<objective::Objective> objective(const text::Tokenizer& tokenizer,
                                                  const format::ModelConfig& config,
                                                  const ObjectiveOptions& options) const override;
  bool weighs_classes() const override { return true; }
  bool reads_shares() const override { return true; }
  bool weighs_rows() const override { return true; }
  void check_training(const FileRows& rows) const override;
  void report_training(const FileRows& rows) const override;
  void report_evaluation(const std::vector<std::string>& labels,
                         const model::Pretrained& model) const override;
  /// If a model's class names differ from the task's, they are assumed to be in the task's order, with a warning.
  std::vector<std::string> labels_of(const format::ModelConfig& config, const fs::path& model) const override;
  /// Details: "confusion_matrix": [true class][predicted class], how many rows. Lines: {"row": 1, "label": …,
  /// "predicted": …, "score": …, "probabilities": {…}}, score being the probability of the prediction.
  std::unique_ptr<Sheet> sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                               const Json& note) const override;

 protected:
  ScoreKind score_kind() const override { return ScoreKind::softmax; }
  /// {"label": …, "score": …, "probabilities": {…}}. Answer::labels is the most probable class. A row with a
  /// confidence below Decision::abstain has the label null and no Answer::labels.
  std::unique_ptr<Answers> answers_to_texts(std::vector<std::string> labels, const Json& note) const override;
  std::string problem_type() const override { return "single_label_classification"; }
};

}  // namespace funicular::task
