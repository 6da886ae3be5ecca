#pragma once
// The task of answering questions by spans of their contexts: SQuAD, CMRC2018.

#include <optional>
#include <string>
#include <vector>

#include "funicular/objective/spans.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// The key in `note` of Task::answers for the number of candidates per answer; it is never in config.json.
inline constexpr const char* kBestSpans = "n_best";

class Spans final : public Task {
 public:
  /// Throws InputError for options of tables.
  Spans(const TaskType& type, FileOptions files);
  static TaskType row();

  int texts() const override { return 2; }
  /// Stores do not have the answers, so their places are read from the file again, see samples().
  data::LabelKind label_kind() const override { return data::LabelKind::none; }
  data::TextFileSourceOptions columns() const override { return {}; }
  std::optional<data::TextFileSourceOptions> table(const fs::path& /*file*/) const override { return {}; }
  /// See task/questions.h.
  std::unique_ptr<data::RowSource> open_rows(const fs::path& file, const RowsOptions& options) const override;
  /// All questions about one context are on one side.
  size_t split_columns() const override { return data::RowSplit::kLastColumn; }
  std::string row_key(const std::string& bad_rows, const std::string& style) const override;
  Json note() const override { return files().note(); }
  int64_t default_length(const fs::path& /*model*/) const override { return 384; }
  /// Windows cover each context completely.
  int64_t longest_row(int64_t /*max_length*/) const override { return INT32_MAX; }

  MetricNames metrics(const std::vector<std::string>& labels) const override;
  std::unique_ptr<objective::Objective> objective(const text::Tokenizer& tokenizer,
                                                  const format::ModelConfig& config,
                                                  const ObjectiveOptions& options) const override;
  TaskSamples samples(const objective::Objective& objective, const text::Tokenizer& tokenizer,
                      std::shared_ptr<const data::TokenStore> store, const fs::path& file) const override;
  void describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const override;
  void check_training(const FileRows& rows) const override;
  void report_training(const FileRows& rows) const override;

  bool scores_classes() const override { return false; }
  std::vector<std::string> answer_keys() const override;
  /// Lines: {"row": 1, "id": …, "question": …, "answers": […], "answer": …, "exact": …, "f1": …, "score": …,
  /// "null_score": …}. Mistakes are the questions without an exact match, by F1.
  std::unique_ptr<Sheet> sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                               const Json& note) const override;
  /// {"id": …, "answer": …, "start": …, "end": …, "score": …, "null_score": …}: characters [start, end) of the
  /// context; "id" only if the file has one. The answer is "" if the note has a threshold and null_score - score is
  /// above it. With kBestSpans also "n_best", the candidates {"answer": …, "start": …, "end": …, "score": …,
  /// "probability": …}.
  std::unique_ptr<Answers> answers(std::vector<std::string> labels, const Json& note) const override;
  /// SQuAD's JSON, or rows of a question and a context: JSON lines, tables, lines with a tab.
  std::unique_ptr<RowInput> open_input(const InputOptions& options) const override;
};

}  // namespace funicular::task
