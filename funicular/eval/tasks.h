#pragma once
// What a task's files look like, what its classes are called, and how it is measured.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/row_source.h"
#include "funicular/data/task_layout.h"
#include "funicular/data/token_store.h"
#include "funicular/text/tokenizer.h"

namespace funicular::eval {

/// A classification task. The layouts of the named ones are those of data/task_layout.h.
struct Task {
  std::string name;
  data::TextFileSourceOptions
      layout;  ///< with text columns and a label column; without one no labels are read
  std::vector<std::string> label_names;  ///< of the classes by number; empty: learnt from the training file
  std::vector<std::string> spellings;    ///< how files write the classes; empty: as they are called
  std::vector<std::string> metrics;      ///< names of objective/metrics.h
  std::string best_metric;               ///< the one by which the best model is chosen; greater is better
  bool multi_label = false;              ///< a row has any number of labels
  std::string label_separator = ",";     ///< between them, see format/list.h
  bool regression = false;               ///< the labels are numbers to predict
  bool tags = false;                     ///< each word has a tag; see open_tagged_rows for the files
  bool conll = false;                    ///< of tags: all files are CoNLL's, whatever their names

  /// Texts of a row: 1, or 2 for pairs.
  int columns() const { return format::texts_of_columns(layout.text_columns.size()); }
  /// The number among `classes`, those of a model in its order, of the class whose F1 the metric f1 is: the task's second.
  int64_t positive(const std::vector<std::string>& classes) const {
    if (label_names.size() != 2) return 1;
    return std::find(classes.begin(), classes.end(), label_names[1]) - classes.begin();
  }
};

/// cola, sst2, mrpc, stsb, rte, custom.
const std::vector<std::string>& task_names();
/// The task of a tag for each word.
inline constexpr const char* kTagTask = "tags";
/// task_names and kTagTask.
std::vector<std::string> task_names_with_tags();

/// Where the columns of a custom task, or of one of tags, lie. Numbers count from 1, anything else is a name in the header
/// or a JSON key.
struct CustomColumns {
  std::vector<std::string>
      text;            ///< one, two for pairs, or more, which are joined into one; empty: "text", of tags
                       ///< the first column or "tokens"
  std::string label;   ///< empty: "label", of tags the last column or "tags"
  std::string format;  ///< tsv | csv | jsonl, of tags conll | jsonl; empty: guessed from each file's name
  bool header = true;  ///< tsv, csv: the first row names the columns
  bool multi_label = false;
  std::string label_separator = ",";
  bool regression = false;
  format::FileStyle style = {};  ///< of all tasks
};

/// Throws InputError for an unknown name, suggesting the nearest.
Task find_task(const std::string& name, const CustomColumns& custom = {});

/// Rows of a task's file, with the labels called by their names.
class TaskSource final : public data::NamedLabelSource {
 public:
  TaskSource(const Task& task, const fs::path& file);
};

/// Rows of a task of tags: of a file of JSON lines (.jsonl, .ndjson) lists of words and of tags, else of CoNLL's formats
/// (data/conll_source.h). `tagged`: false where no tags are read. `on_bad`: see data::ConllOptions. Throws InputError for
/// columns of CoNLL's that have names.
std::unique_ptr<data::RowSource> open_tagged_rows(const Task& task, const fs::path& file, bool tagged = true,
                                                  std::function<void(const std::string&)> on_bad = {});

/// The rows of a task's file, whatever the task.
std::unique_ptr<data::RowSource> open_task_rows(const Task& task, const fs::path& file);

/// Tokenises a task's file into the store folder/NAME-FINGERPRINT.tokens, and warns of rows that it leaves out, or opens it
/// where it was made before from the same file, task, tokeniser and labels. `verify`: all of it is read and compared with its
/// checksums; one that is damaged is made again, with a warning. `labels`: the classes in order; empty:
/// learnt from the file (sorted). Throws InputError: a wrong row or an unknown label (with file:line), a file
/// without rows.
std::shared_ptr<const data::TokenStore> open_task_store(const Task& task, const fs::path& file,
                                                        const std::string& name,
                                                        const text::Tokenizer& tokenizer,
                                                        const std::vector<std::string>& labels,
                                                        const fs::path& folder, bool verify = true);

}  // namespace funicular::eval
