#pragma once
// --task and what describes a custom one: shared by finetune and evaluate.

#include <string>

#include "funicular/cli/arguments.h"
#include "funicular/eval/tasks.h"

namespace funicular::cli {

struct TaskOptions {
  std::string name;
  eval::CustomColumns custom;

  void declare(Arguments& arguments);
  /// Throws InputError where --text-column and its like are given for a task that has its own layout.
  eval::Task task(const Arguments& arguments) const;
};

}  // namespace funicular::cli
