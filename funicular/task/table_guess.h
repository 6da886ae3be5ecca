#pragma once
// Guesses the texts, the label and the task of a file of rows from its columns. A guess that could be wrong
// is refused, and the message lists the columns and the options to give.

#include <memory>
#include <string>

#include "funicular/base/file.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// How well the cells of a label column suit a task.
enum class Suits { no, perhaps, yes };

struct TableGuess {
  std::shared_ptr<const Task> task;
  std::string said;  ///< a line for people: the columns, the task, and the equivalent options
};

/// Guesses the options that `said` leaves unset. `type`: a name of task_types() if the task is known, else "". Throws
/// InputError if the guess is not clear.
TableGuess guess_task(const fs::path& file, const FileOptions& said, const std::string& type = "");

}  // namespace funicular::task
