#pragma once
// A task defines the answers to texts: a class, labels, a number, or a tag per word. Each task has its own pair of
// files and a row in task/registry.h.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/data/row_source.h"
#include "funicular/data/row_split.h"
#include "funicular/data/share_source.h"
#include "funicular/data/token_store.h"
#include "funicular/format/cross_encoder.h"
#include "funicular/format/model_config.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/class_loss.h"
#include "funicular/objective/objective.h"
#include "funicular/objective/ranking_losses.h"
#include "funicular/objective/sequence.h"
#include "funicular/objective/soft_labels.h"
#include "funicular/objective/vector_losses.h"
#include "funicular/task/answers.h"
#include "funicular/task/row_input.h"
#include "funicular/task/sheet.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

struct TaskType;

/// The options by which a user describes a task's files. The task has a default for each.
struct FileOptions {
  /// Columns of text. A number counts from 1; anything else is a name in the header or a JSON key.
  std::vector<std::string> text = {};
  std::string label = {};              ///< the column of the label, written as a column of text
  std::string format = {};             ///< tsv | csv | jsonl | conll; "": guessed from each file's name
  std::optional<bool> header = {};     ///< tsv, csv: whether the first row names the columns
  std::string label_separator = {};    ///< separator of a row's labels; "": a comma
  std::optional<int64_t> stride = {};  ///< tokens that two windows of a text share; none: the task's default
  data::ShareColumns shares = {};      ///< shares instead of a label, and weights
  format::FileStyle style = {};
  /// The rows to read: one side of a split. Null: all.
  std::shared_ptr<const data::RowSplit> split = {};
  bool held_out = false;  ///< the side of `split`
  /// A table (.npy) of a teacher's vectors for the rows (task/teacher_vectors.h). The file's first row has the vector
  /// `first_vector`. Empty: no teacher.
  fs::path teacher = {};
  int64_t first_vector = 0;
  bool margins = false;  ///< triplets: the loss reads a label as margins (task/text_groups.h)

  /// Sets unset options from `note` (config.json's key "funicular"). Throws InputError for a malformed note.
  void fill_from(const Json& note);
  /// Returns the note that `fill_from` reads.
  Json note() const;
  const std::string& separator() const;
};

/// The key of FileOptions::note within config.json's "funicular".
inline constexpr const char* kColumnsNote = "columns";

/// The default length of a sequence in tokens; the model's longest if that is less.
inline constexpr int64_t kDefaultLength = 128;

/// Options for reading the rows of a file.
struct RowsOptions {
  bool labelled = true;                            ///< false: no labels are read
  std::vector<std::string> labels = {};            ///< labels of shares, in order; empty: the file's
  std::shared_ptr<format::BadRows> bad_rows = {};  ///< null: a bad row is an error
  /// Called for each skipped CoNLL sentence, see data::ConllOptions.
  std::function<void(const std::string&)> on_bad = {};
};

struct MetricNames {
  std::vector<std::string> all =
      {};                 ///< names of objective/metrics.h and tag_metrics.h; empty: unknown without labels
  std::string best = {};  ///< the metric that chooses the best model
  std::string earlier_best = {};  ///< the one of version 0.1, which its runs keep
};

/// Choices for the training of an embedder (task/embedders.h).
struct EmbeddingOptions {
  bool chosen = false;  ///< false: the task's own loss
  objective::VectorLossOptions loss = {};
  std::string pooling = {};  ///< for a folder without poolings, from format::pooling_names(); "": mean
  fs::path folder = {};      ///< of the model that is trained or used; may be empty
};

/// Choices for the training of a reranker (task/rerankers.h).
struct RankingChoice {
  bool chosen = false;  ///< false: the model's own loss
  objective::RankingLossOptions loss = {};
  std::optional<format::ScoreActivation> activation = {};  ///< none: the model's own, else the loss decides
};

struct ObjectiveOptions {
  objective::SequenceOptions sequence;
  bool labelled = true;                  ///< false: for prediction
  std::vector<std::string> labels = {};  ///< the classes by number
  objective::ClassLoss loss = {};        ///< only for tasks whose weighs_classes() is true
  objective::SoftLabels soft = {};       ///< for tasks whose reads_shares() or weighs_rows() is true
  EmbeddingOptions embedding = {};
  RankingChoice ranking = {};
};

/// A file and its rows, for messages.
struct FileRows {
  const data::TokenStore& store;
  const fs::path& file;
};

/// The samples of a file's rows, and the metrics of an evaluation on them.
struct TaskSamples {
  std::shared_ptr<const data::Dataset> samples;
  std::unique_ptr<Metrics> metrics;
};

class Task {
 public:
  Task(const TaskType& type, std::string name, FileOptions files);
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  const TaskType& type() const { return type_; }
  /// The name in --task and config.json: "custom", "mrpc", "tags".
  const std::string& name() const { return name_; }
  const FileOptions& files() const { return files_; }

  // ---- its files

  /// Texts of a row: 1, or 2 for pairs.
  virtual int texts() const { return 1; }
  /// The kind of labels in a token store.
  virtual data::LabelKind label_kind() const = 0;
  /// The classes by number, if the task defines them; empty: from the training rows.
  virtual const std::vector<std::string>& label_names() const;
  /// Spellings of the classes in files, in the order of label_names(); empty: their names.
  virtual const std::vector<std::string>& spellings() const;
  /// The columns that the user or the task names, before a file is seen.
  virtual data::TextFileSourceOptions columns() const = 0;
  /// The options for reading the file as a table. None: the file has no named columns.
  virtual std::optional<data::TextFileSourceOptions> table(const fs::path& file) const = 0;
  /// The file's rows on the side of FileOptions::split, with the labels called by their names. Throws InputError.
  virtual std::unique_ptr<data::RowSource> open_rows(const fs::path& file,
                                                     const RowsOptions& options) const = 0;
  /// The number of a row's first columns that a split compares, so that rows with equal texts there are on one side;
  /// 0: all columns. RowSplit::kAnyColumn and kLastColumn are possible, too.
  virtual size_t split_columns() const { return 0; }
  /// The part of a token store's key that describes how rows are read. It includes `bad_rows` and `style`. The order
  /// of its words must not change, so that older stores are found.
  virtual std::string row_key(const std::string& bad_rows, const std::string& style) const {
    return bad_rows + style;
  }
  /// The part of files() that config.json keeps; null: nothing.
  virtual Json note() const { return nullptr; }

  // ---- training

  /// `labels`: the classes, which may affect the metrics.
  virtual MetricNames metrics(const std::vector<std::string>& labels) const = 0;
  /// Whether MetricNames::best can distinguish models on the rows; otherwise the loss chooses the best model.
  virtual bool defines_best_metric(const FileRows& /*rows*/) const { return true; }
  /// Makes the objective for a model of this configuration. Throws InputError for one that does not fit.
  virtual std::unique_ptr<objective::Objective> objective(const text::Tokenizer& tokenizer,
                                                          const format::ModelConfig& config,
                                                          const ObjectiveOptions& options) const = 0;
  /// `store`: made from `file`. `objective`: from objective(). Both, and the tokeniser, must outlive the result.
  /// Unless overridden, samples and metrics are the objective's.
  virtual TaskSamples samples(const objective::Objective& objective, const text::Tokenizer& tokenizer,
                              std::shared_ptr<const data::TokenStore> store, const fs::path& file) const;
  /// The default of the most tokens of a sequence. `model`: the folder from which training starts.
  virtual int64_t default_length(const fs::path& /*model*/) const { return kDefaultLength; }
  /// Whether each text of a row is a separate sequence, which is cut separately.
  virtual bool texts_are_sequences() const { return false; }
  /// The most tokens of a row that is not cut, including special tokens.
  virtual int64_t longest_row(int64_t max_length) const { return max_length; }
  /// With FileOptions::stride: wraps the metrics `of_texts`, which know no windows, for an evaluation on windows;
  /// `of_texts` then gets whole texts. Null: the samples are whole texts, or `of_texts` supports windows. `note`: of
  /// the model that is evaluated (config.json's key "funicular"); null for a model in training. All three outlive the
  /// result.
  virtual std::unique_ptr<Metrics> over_windows(const data::Dataset& /*samples*/, Metrics& /*of_texts*/,
                                                const Json& /*note*/) const {
    return nullptr;
  }
  /// Whether classes may have weights and smoothed labels (ObjectiveOptions::loss).
  virtual bool weighs_classes() const { return false; }
  /// Whether its rows may have shares instead of a label (FileOptions::shares).
  virtual bool reads_shares() const { return false; }
  /// Whether its rows may have weights (data::ShareColumns::weight).
  virtual bool weighs_rows() const { return false; }
  /// Whether rows of one text are expected to have one label.
  virtual bool labels_follow_texts() const { return true; }
  /// Training ends with an error if the loss exceeds the first one by this factor.
  virtual double diverged_at() const;
  /// Describes a model with these classes in the configuration.
  virtual void describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const = 0;
  /// Throws InputError for rows that cannot be learnt.
  virtual void check_training(const FileRows& rows) const = 0;
  /// Warns of doubtful labels of training rows.
  virtual void report_training(const FileRows& rows) const = 0;
  /// Logs the rules by which a model with these classes is scored.
  virtual void report_evaluation(const std::vector<std::string>& /*labels*/,
                                 const model::Pretrained& /*model*/) const {}
  /// Logs what the training has written to config.json. `evaluated`: the rows that chose the best model.
  virtual void report_trained(const FileRows& /*evaluated*/) const {}

  // ---- a model of it

  /// The classes of a model in its order, spelt as the task's. Throws InputError for a model of other classes.
  virtual std::vector<std::string> labels_of(const format::ModelConfig& config, const fs::path& model) const;
  /// Whether an evaluation has scores for each class (Sheet::add_details).
  virtual bool scores_classes() const { return true; }
  /// Whether the texts of a row are its words.
  virtual bool reads_words() const { return false; }
  /// A clause for messages about cut texts that describes the effect on their answers.
  virtual const char* answers_to_cut_texts() const { return "the answers come from the rest"; }
  /// The keys of its answers. A kept column of this name gets another key (KeptColumns).
  virtual std::vector<std::string> answer_keys() const;
  /// Whether answers can be rows of a table.
  virtual bool fits_tables() const { return true; }
  /// The sheet of an evaluation. `metrics`: from samples(). `note`: config.json's key "funicular".
  virtual std::unique_ptr<Sheet> sheet(std::unique_ptr<Metrics> metrics, std::vector<std::string> labels,
                                       const Json& note) const = 0;
  /// `note`: as for sheet().
  virtual std::unique_ptr<Answers> answers(std::vector<std::string> labels, const Json& note) const = 0;
  /// The rows to answer. Throws InputError for options that do not fit the task.
  virtual std::unique_ptr<RowInput> open_input(const InputOptions& options) const = 0;

 protected:
  /// The rows on the side of FileOptions::split.
  std::unique_ptr<data::RowSource> own_side(std::unique_ptr<data::RowSource> rows) const;

 private:
  const TaskType& type_;
  std::string name_;
  FileOptions files_;
};

/// Reads the note in config.json ("funicular") on a task and its sequences.
model::TaskNote note_of(const Task& task, int64_t max_length, const std::string& truncation);

}  // namespace funicular::task
