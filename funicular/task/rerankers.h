#pragma once
// The task of rerankers, which score a query and a text; sentence-transformers' CrossEncoder.

#include <string>
#include <vector>

#include "funicular/task/registry.h"
#include "funicular/task/task.h"

namespace funicular::task {

class Rerankers final : public Task {
 public:
  /// Throws InputError for a number of columns that rows do not have.
  Rerankers(const TaskType& type, FileOptions files);
  static TaskType row();

  int texts() const override { return 2; }
  data::LabelKind label_kind() const override { return data::LabelKind::values; }
  data::TextFileSourceOptions columns() const override { return columns_; }
  std::optional<data::TextFileSourceOptions> table(const fs::path& /*file*/) const override {
    return columns_;
  }
  std::unique_ptr<data::RowSource> open_rows(const fs::path& file, const RowsOptions& options) const override;
  std::string row_key(const std::string& bad_rows, const std::string& style) const override;
  Json note() const override;

  MetricNames metrics(const std::vector<std::string>& labels) const override;
  /// Unless a loss is chosen, the model's own, as config.json notes it; else bce. The activation is the
  /// model's own, else sigmoid for bce and identity for all other losses.
  std::unique_ptr<objective::Objective> objective(const text::Tokenizer& tokenizer,
                                                  const format::ModelConfig& config,
                                                  const ObjectiveOptions& options) const override;
  /// Throws InputError for rows that the loss cannot use, and names the line of a wrong label.
  TaskSamples samples(const objective::Objective& objective, const text::Tokenizer& tokenizer,
                      std::shared_ptr<const data::TokenStore> store, const fs::path& file) const override;
  size_t split_columns() const override { return 1; }
  bool defines_best_metric(const FileRows& rows) const override;
  double diverged_at() const override;
  void describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const override;
  void check_training(const FileRows& rows) const override;
  void report_training(const FileRows& rows) const override;

  std::vector<std::string> labels_of(const format::ModelConfig& /*config*/,
                                     const fs::path& /*model*/) const override {
    return {};
  }
  bool scores_classes() const override { return false; }
  const char* answers_to_cut_texts() const override { return "the scores come from the rest"; }
  /// Lines: {"row": 1, "label": …, "score": …}. Mistakes are queries whose first text is not relevant, the worst first.
  std::unique_ptr<Sheet> sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                               const Json& note) const override;
  /// A line per text, the best first: {"query": …, "rank": 1, "score": …, "text": …, "place": 3}. Until the
  /// Predictor writes the lines, format::kListMark stands between them. Answer::scores are in the order of the texts.
  std::unique_ptr<Answers> answers(std::vector<std::string> labels, const Json& note) const override;
  std::unique_ptr<RowInput> open_input(const InputOptions& options) const override;

 private:
  data::TextFileSourceOptions columns_;
};

}  // namespace funicular::task
