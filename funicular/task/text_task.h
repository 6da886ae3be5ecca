#pragma once
// The base class of tasks on whole texts. A row of a table has one text, a pair of texts, or columns to join, and one
// label.

#include <string>
#include <utility>
#include <vector>

#include "funicular/data/named_tasks.h"
#include "funicular/task/registry.h"
#include "funicular/task/task.h"
#include "funicular/task/window_scores.h"

namespace funicular::task {

class TextTask : public Task {
 public:
  /// The value of --task for these tasks.
  static constexpr const char* kOption = "custom";

  /// `named`: the task of known files, or null for any table. Throws InputError for pairs with a stride.
  TextTask(const TaskType& type, FileOptions files, const data::NamedTask* named);

  int texts() const override { return format::texts_of_columns(layout_.text_columns.size()); }
  const std::vector<std::string>& label_names() const override;
  const std::vector<std::string>& spellings() const override;
  data::TextFileSourceOptions columns() const override;
  std::optional<data::TextFileSourceOptions> table(const fs::path& file) const override;
  std::unique_ptr<data::RowSource> open_rows(const fs::path& file, const RowsOptions& options) const override;
  /// Null for known files.
  Json note() const override;
  void check_training(const FileRows& rows) const override;
  void describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const override;
  std::unique_ptr<RowInput> open_input(const InputOptions& options) const override;
  /// With a stride, windows read each text to its end.
  int64_t longest_row(int64_t max_length) const override { return files().stride ? INT32_MAX : max_length; }
  std::unique_ptr<Metrics> over_windows(const data::Dataset& samples, Metrics& of_texts,
                                        const Json& note) const override;
  /// Gives the answers of answers_to_texts(), with a stride from a text's windows.
  std::unique_ptr<Answers> answers(std::vector<std::string> labels, const Json& note) const final;

 protected:
  /// The common parts of these tasks' registry rows.
  template <class T>
  static TaskType row_of_tables(std::string name) {
    return {.name = std::move(name),
            .option = kOption,
            .options = {"text-column", "label-column", "format", "header", "quotes", "regression",
                        "multi-label", "label-separator", "soft-columns", "soft-labels", "normalize-shares",
                        "weight-column", "stride"},
            .reads = "TSV, CSV or JSON lines",
            .make = [](const TaskType& type, FileOptions files, const data::NamedTask* named)
                -> std::unique_ptr<Task> { return std::make_unique<T>(type, std::move(files), named); }};
  }
  const data::NamedTask* named() const { return named_; }
  /// With the settings of the files.
  objective::SoftLabels soft_labels(const ObjectiveOptions& options) const;
  /// With the stride of the files.
  objective::SequenceOptions sequence_of(const ObjectiveOptions& options) const;
  virtual ScoreKind score_kind() const = 0;
  virtual std::unique_ptr<Answers> answers_to_texts(std::vector<std::string> labels,
                                                    const Json& note) const = 0;
  /// transformers' name for the kind of labels.
  virtual std::string problem_type() const = 0;
  /// The kinds of columns that may hold lists in JSON lines.
  virtual format::Lists lists() const { return format::Lists::none; }

 private:
  format::TextOptions lines_layout(const InputOptions& options) const;
  format::TextOptions table_layout(const InputOptions& options, format::TextFormat format) const;

  const data::NamedTask* named_;
  data::TextFileSourceOptions layout_;
};

}  // namespace funicular::task
