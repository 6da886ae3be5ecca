#pragma once
// The tasks that there are: one row each.

#include <memory>
#include <string>
#include <vector>

#include "funicular/data/named_tasks.h"
#include "funicular/model/pretrained.h"
#include "funicular/task/task.h"

namespace funicular::task {

struct ColumnFacts;
enum class Suits;

/// A row of the table of tasks.
struct TaskType {
  std::string name;       ///< "classes"
  std::string option;     ///< the value of --task: "custom"
  std::string more = {};  ///< the option that chooses among tasks of one value: "--regression"; may be empty
  std::vector<std::string> options = {};  ///< of the command line: they describe its files
  std::string gives = {};                 ///< what its models give: "one class per text"
  std::string reads = {};                 ///< the files it learns from: "TSV, CSV or JSON lines"
  std::string answers =
      {};  ///< a sentence or two of predict's help on its answers; empty: predict refuses its models, and embed takes them
  /// For the help of finetune: a purpose, and the words that follow --task and the name.
  struct {
    std::string purpose, words;
  } example = {};
  bool is_distilled = false;  ///< whether a student can learn its answers (objective/distilled_answers.h)
  /// Whether a model of this configuration is the task's own. The first row that says so owns the model.
  bool (*owns)(const format::ModelConfig& config) = nullptr;
  /// `named`: the known files, or null for files of any layout.
  std::unique_ptr<Task> (*make)(const TaskType& type, FileOptions files, const data::NamedTask* named);
  std::vector<std::string> aliases = {};  ///< other values of --task that mean it
  std::vector<std::string> foreign =
      {};  ///< names of the task elsewhere, which are answered by how to ask for it here
  /// A file of answers whose name ends so has one object, {id: answer}; empty: there is no such form.
  std::string keyed_ending = {};
  /// How well the cells of a label column suit the task, for guesses about files (table_guess.h). Null: not at all.
  Suits (*suits)(const ColumnFacts& labels) = nullptr;
  /// Whether the file itself tells that it is the task's, by its name or its first bytes. Null: it never does.
  bool (*reads_file)(const fs::path& file) = nullptr;

  /// How one asks for it: "--task custom --regression".
  std::string asked_for() const;
};

/// The rows that the tasks' classes give.
const std::vector<TaskType>& task_types();

/// The task whose models have this configuration.
const TaskType& type_of(const format::ModelConfig& config);

/// The values of --task: data::named_tasks() and the options of task_types().
std::vector<std::string> task_names();
/// The names of tasks whose rows are texts and not lists of words.
std::vector<std::string> text_task_names();

/// A task by a name of task_names() or of task_types(); "custom" is "classes". Throws InputError for another name,
/// suggesting the nearest.
std::shared_ptr<const Task> find_task(const std::string& name, FileOptions files = {});

/// A copy of the task with other options of its files.
std::shared_ptr<const Task> with_files(const Task& task, FileOptions files);

/// The task of a model's folder, with the columns of its fine-tuning unless `said` has others.
std::shared_ptr<const Task> task_of(const model::Pretrained& pretrained, FileOptions said = {});

}  // namespace funicular::task
