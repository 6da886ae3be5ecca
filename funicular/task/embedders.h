#pragma once
// The tasks of sentence embedders: pairs and triplets of related texts, pairs with scores, and texts with a teacher's
// vectors.

#include <string>
#include <string_view>
#include <vector>

#include "funicular/task/registry.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// Contents of a row of an embedder's files.
enum class TextGroup {
  pairs,     ///< an anchor and a positive
  triplets,  ///< an anchor, a positive, and at least one negative
  scores,    ///< two texts and how similar they are
  vectors    ///< a text; a teacher gives the vector (FileOptions::teacher)
};

class Embedders final : public Task {
 public:
  /// Throws InputError for another number of columns than the rows have.
  Embedders(const TaskType& type, FileOptions files, TextGroup group);
  /// The rows of task/registry.h.
  static TaskType row(TextGroup group);
  /// The losses of the task of this name, for messages: "cosent, angle".
  static std::string losses(std::string_view task);

  /// Each text is a separate sequence.
  int texts() const override { return 1; }
  data::LabelKind label_kind() const override {
    return has_margins() ? data::LabelKind::numbers : data::LabelKind::values;
  }
  data::TextFileSourceOptions columns() const override { return columns_; }
  std::optional<data::TextFileSourceOptions> table(const fs::path& /*file*/) const override {
    return columns_;
  }
  std::unique_ptr<data::RowSource> open_rows(const fs::path& file, const RowsOptions& options) const override;
  /// Rows that share a text are on one side.
  size_t split_columns() const override { return data::RowSplit::kAnyColumn; }
  std::string row_key(const std::string& bad_rows, const std::string& style) const override;
  Json note() const override;
  bool texts_are_sequences() const override { return true; }
  /// The length in a folder of sentence-transformers, if it has one.
  int64_t default_length(const fs::path& model) const override;

  MetricNames metrics(const std::vector<std::string>& labels) const override;
  std::unique_ptr<objective::Objective> objective(const text::Tokenizer& tokenizer,
                                                  const format::ModelConfig& config,
                                                  const ObjectiveOptions& options) const override;
  /// Throws InputError for rows that the loss cannot use, and names the line of a wrong label.
  TaskSamples samples(const objective::Objective& objective, const text::Tokenizer& tokenizer,
                      std::shared_ptr<const data::TokenStore> store, const fs::path& file) const override;
  bool labels_follow_texts() const override { return files().teacher.empty(); }  // else they are row numbers
  double diverged_at() const override;
  void describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const override;
  void check_training(const FileRows& rows) const override;
  void report_training(const FileRows& rows) const override;

  std::vector<std::string> labels_of(const format::ModelConfig& /*config*/,
                                     const fs::path& /*model*/) const override {
    return {};
  }
  bool scores_classes() const override { return false; }
  /// Lines: {"row": 1, "label": …, "cosine": …}, {"row": 1, "rank": …}, or {"row": 1, "cosine": …}. Mistakes are the
  /// rows whose positive is not the most similar text, the worst first.
  std::unique_ptr<Sheet> sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                               const Json& note) const override;
  /// Throws InputError, as `funicular embed` makes vectors.
  std::unique_ptr<Answers> answers(std::vector<std::string> labels, const Json& note) const override;
  std::unique_ptr<RowInput> open_input(const InputOptions& options) const override;

 private:
  bool is_labelled() const { return columns_.label_column.has_value() || !files().teacher.empty(); }
  /// Whether the label of a row is a margin for each negative.
  bool has_margins() const {
    return files().margins && group_ == TextGroup::triplets && columns_.label_column.has_value();
  }
  void check_labels(const objective::VectorLossOptions& loss, const FileRows& rows) const;
  objective::VectorLossOptions loss_of(const ObjectiveOptions& options) const;

  TextGroup group_;
  data::TextFileSourceOptions columns_;
};

}  // namespace funicular::task
