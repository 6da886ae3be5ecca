#pragma once
// The task of any number of labels per text or pair of texts.

#include "funicular/task/text_task.h"

namespace funicular::task {

class Labels final : public TextTask {
 public:
  using TextTask::TextTask;
  static TaskType row();
  data::LabelKind label_kind() const override {
    return files().shares.has_shares() ? data::LabelKind::set_shares : data::LabelKind::sets;
  }
  bool reads_shares() const override { return true; }
  bool weighs_rows() const override { return true; }
  std::string row_key(const std::string& bad_rows, const std::string& style) const override;
  MetricNames metrics(const std::vector<std::string>& labels) const override;
  /// With the thresholds from the configuration.
  std::unique_ptr<objective::Objective> objective(const text::Tokenizer& tokenizer,
                                                  const format::ModelConfig& config,
                                                  const ObjectiveOptions& options) const override;
  void check_training(const FileRows& rows) const override;
  void report_training(const FileRows& rows) const override;
  void report_evaluation(const std::vector<std::string>& labels,
                         const model::Pretrained& model) const override;
  void report_trained(const FileRows& evaluated) const override;
  /// Details: "confusion_matrices": {"NAME": [has the label or not][is given it or not], …}, 0 for not. Lines:
  /// {"row": 1, "labels": […], "predicted": […], "probabilities": {…}}, with "unknown": […] if labels of the row are
  /// unknown. A mistake's label_score is the probability
  /// of the decision that the row contradicts most.
  std::unique_ptr<Sheet> sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                               const Json& note) const override;

 protected:
  ScoreKind score_kind() const override { return ScoreKind::sigmoid; }
  /// {"labels": […], "probabilities": {…}}: the labels whose probability is at least their threshold, which is 0.5
  /// unless the note has another.
  std::unique_ptr<Answers> answers_to_texts(std::vector<std::string> labels, const Json& note) const override;
  std::string problem_type() const override { return "multi_label_classification"; }
  format::Lists lists() const override { return format::Lists::last; }
};

}  // namespace funicular::task
