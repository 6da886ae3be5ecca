#pragma once
// --task and what describes its files: shared by the commands that read rows of a task.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/cli/arguments.h"
#include "funicular/cli/file_style.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

struct TaskOptions {
  std::string name;
  std::vector<std::string> text;
  std::string label, format, label_separator = ",";
  std::optional<int64_t> stride = {};
  bool header = true, multi_label = false, regression = false;
  data::ShareColumns shares = {};
  FileStyleOptions written;
  std::optional<bool> skip_bad_rows = {};  ///< none: the command has no such option

  /// --task.
  Option& declare_name(Arguments& arguments, const std::vector<std::string>& names,
                       std::string help = "the task");
  /// The columns of a custom task.
  void declare(Arguments& arguments);
  /// --soft-columns and its like, and --weight-column of a command that `trains`.
  void declare_shares(Arguments& arguments, bool trains);
  /// --skip-bad-rows.
  void declare_bad_rows(Arguments& arguments);
  /// Throws InputError if --text-column and its like are given for a task that has its own layout.
  void refuse_columns(const Arguments& arguments) const;
  /// Throws InputError if --encoding or --quotes are given though no such files are read; `reason` says why.
  void refuse_style(const Arguments& arguments, const std::string& reason) const;
  /// The options of the files, as far as they were given.
  task::FileOptions files(const Arguments& arguments) const;
  /// The task of --task, --multi-label and --regression. Refuses columns as refuse_columns does.
  std::shared_ptr<const task::Task> task(const Arguments& arguments) const;
  /// Without --task: guesses the task and its columns from the file's rows, and says what it has guessed. Else as task().
  std::shared_ptr<const task::Task> task_of_rows(const fs::path& file, const Arguments& arguments);
  /// For a model's folder: what is not given is as in fine-tuning. An empty `name` becomes the noted one. Throws InputError if
  /// there is none.
  std::shared_ptr<const task::Task> task_for(const model::Pretrained& pretrained, const Arguments& arguments);
  /// For --skip-bad-rows.
  std::shared_ptr<format::BadRows> bad_rows() const;

 private:
  std::vector<std::string> declared_shares_ = {};  ///< the options of declare_shares
  /// As task::find_task takes it.
  std::string type() const;
};

}  // namespace funicular::cli
