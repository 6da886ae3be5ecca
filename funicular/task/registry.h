#pragma once
// The known tasks, one row each.

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
  std::vector<std::string> options = {};  ///< command-line options that describe its files
  std::string gives = {};                 ///< the answers of its models: "one class per text"
  std::string reads = {};                 ///< its training files: "TSV, CSV or JSON lines"
  std::string answers =
      {};  ///< help of predict on its answers; empty: predict refuses its models, and embed accepts them
  /// For finetune's help: a purpose, and the words after --task and the name.
  struct {
    std::string purpose, words;
  } example = {};
  bool is_distilled = false;  ///< whether a student can learn its answers (objective/distilled_answers.h)
  /// Whether a model of this configuration belongs to the task. The first row that returns true owns the model.
  bool (*owns)(const format::ModelConfig& config) = nullptr;
  /// `named`: the known files, or null for files of any layout.
  std::unique_ptr<Task> (*make)(const TaskType& type, FileOptions files, const data::NamedTask* named);
  std::vector<std::string> aliases = {};  ///< other values of --task for it
  std::vector<std::string> foreign =
      {};  ///< the task's names in other programs, for a hint to the right option
  /// Suffix of answer files that have one object, {id: answer}; empty: no such format.
  std::string keyed_ending = {};
  /// How well a label column suits the task, for guesses about files (table_guess.h). Null: not at all.
  Suits (*suits)(const ColumnFacts& labels) = nullptr;
  /// Whether the file's name or first bytes show that it belongs to the task. Null: never.
  bool (*reads_file)(const fs::path& file) = nullptr;

  /// The options that select it: "--task custom --regression".
  std::string asked_for() const;
};

/// The rows of the tasks' classes.
const std::vector<TaskType>& task_types();

/// The task whose models have this configuration.
const TaskType& type_of(const format::ModelConfig& config);

/// The values of --task: data::named_tasks() and the options of task_types().
std::vector<std::string> task_names();
/// The names of tasks whose rows are texts instead of lists of words.
std::vector<std::string> text_task_names();

/// Finds a task by a name of task_names() or of task_types(); "custom" means "classes". Throws InputError for another
/// name, and suggests the nearest.
std::shared_ptr<const Task> find_task(const std::string& name, FileOptions files = {});

/// A copy of the task with other options of its files.
std::shared_ptr<const Task> with_files(const Task& task, FileOptions files);

/// The task of a model's folder, with the columns of its fine-tuning unless `said` has others.
std::shared_ptr<const Task> task_of(const model::Pretrained& pretrained, FileOptions said = {});

}  // namespace funicular::task
