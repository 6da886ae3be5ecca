#pragma once
// The task of tagging each word of a text: named entities, parts of speech.

#include <optional>
#include <string>

#include "funicular/task/task.h"

namespace funicular::task {

class Tags final : public Task {
 public:
  /// If no columns are given, they depend on each file's format. Throws InputError for several columns of words, and
  /// for formats without words.
  Tags(const TaskType& type, FileOptions files);
  static TaskType row();

  data::LabelKind label_kind() const override { return data::LabelKind::tags; }
  data::TextFileSourceOptions columns() const override;
  /// None for CoNLL's formats, whose columns have no names.
  std::optional<data::TextFileSourceOptions> table(const fs::path& file) const override;
  /// In files of JSON lines (.jsonl, .ndjson) a row is a list of words and one of tags. Other files have CoNLL's
  /// formats, see data/conll_source.h. Throws InputError for columns of CoNLL's that have names.
  std::unique_ptr<data::RowSource> open_rows(const fs::path& file, const RowsOptions& options) const override;
  std::string row_key(const std::string& bad_rows, const std::string& style) const override;
  Json note() const override { return files().note(); }

  /// Scores entities if the labels are entity tags, otherwise words. Unknown without labels.
  MetricNames metrics(const std::vector<std::string>& labels) const override;
  std::unique_ptr<objective::Objective> objective(const text::Tokenizer& tokenizer,
                                                  const format::ModelConfig& config,
                                                  const ObjectiveOptions& options) const override;
  bool weighs_classes() const override { return true; }
  void describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const override;
  void check_training(const FileRows& rows) const override;
  void report_training(const FileRows& rows) const override;
  void report_evaluation(const std::vector<std::string>& labels,
                         const model::Pretrained& model) const override;

  bool reads_words() const override { return true; }
  /// With a stride, windows read each text to its end.
  int64_t longest_row(int64_t max_length) const override { return files().stride ? INT32_MAX : max_length; }
  std::unique_ptr<Metrics> over_windows(const data::Dataset& samples, Metrics& of_texts,
                                        const Json& note) const override;
  const char* answers_to_cut_texts() const override { return "have the tag null"; }
  std::vector<std::string> answer_keys() const override;
  bool fits_tables() const override { return false; }
  /// See TagSheet.
  std::unique_ptr<Sheet> sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                               const Json& note) const override;
  /// With kAggregation see entity_answers.h. Otherwise {"words": […], "tags": […]}; without a stride, words that do not
  /// fit into a sequence have null. If the tags name entities (objective/tag_metrics.h), also "entities": [{"type": …,
  /// "text": …, "begin": …, "end": …, "score": …}, …]. An entity holds the words [begin, end), counted from 0. Its
  /// score is the mean of the words' scores.
  std::unique_ptr<Answers> answers(std::vector<std::string> labels, const Json& note) const override;
  /// Lines of words with blanks between them, lists of words in JSON lines, or files of CoNLL's.
  std::unique_ptr<RowInput> open_input(const InputOptions& options) const override;
};

}  // namespace funicular::task
