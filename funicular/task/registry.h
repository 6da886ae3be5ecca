#pragma once
// The tasks that there are: one row each.

#include <memory>
#include <string>
#include <vector>

#include "funicular/data/named_tasks.h"
#include "funicular/model/pretrained.h"
#include "funicular/task/task.h"

namespace funicular::task {

struct TaskType {
  std::string name;    ///< "classes"
  std::string option;  ///< the value of --task: "custom"
  std::string more;    ///< the option that chooses among tasks of one value: "--regression"; may be empty
  std::vector<std::string> options;  ///< of the command line: they describe its files
  std::string gives;                 ///< what its models give: "one class per text"
  bool is_distilled;  ///< whether a student can learn its answers (objective/distilled_answers.h)
  /// Whether a model of this configuration is the task's own. The first row that says so owns the model.
  bool (*owns)(const format::ModelConfig& config);
  /// `named`: the known files, or null for files of any layout.
  std::unique_ptr<Task> (*make)(const TaskType& type, FileOptions files, const data::NamedTask* named);
  std::vector<std::string> aliases = {};  ///< other values of --task that mean it

  /// How one asks for it: "--task custom --regression".
  std::string asked_for() const;
};

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

/// The task of a model's folder, with the columns of its fine-tuning unless `said` has others.
std::shared_ptr<const Task> task_of(const model::Pretrained& pretrained, FileOptions said = {});

}  // namespace funicular::task
