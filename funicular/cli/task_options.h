#pragma once
// --task and what describes a custom one: shared by finetune and evaluate.

#include <string>
#include <vector>

#include "funicular/cli/arguments.h"
#include "funicular/eval/tasks.h"

namespace funicular::cli {

struct TaskOptions {
  std::string name;
  eval::CustomColumns custom;

  /// --task, required.
  void declare_name(Arguments& arguments, std::vector<std::string> names);
  /// The columns of a custom task.
  void declare(Arguments& arguments);
  /// Throws InputError where --text-column and its like are given for a task that has its own layout.
  void refuse_columns(const Arguments& arguments) const;
  /// Refuses columns as refuse_columns does.
  eval::Task task(const Arguments& arguments) const;
};

}  // namespace funicular::cli
