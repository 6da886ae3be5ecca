#pragma once
// --task and what describes a custom one: shared by finetune, evaluate and predict.

#include <optional>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/cli/arguments.h"
#include "funicular/cli/file_style.h"
#include "funicular/eval/tasks.h"

namespace funicular::cli {

struct TaskOptions {
  std::string name;
  eval::CustomColumns custom;
  FileStyleOptions written;
  std::optional<bool> skip_bad_rows = {};  ///< none: the command has no such option

  /// --task.
  Option& declare_name(Arguments& arguments, std::vector<std::string> names);
  /// The columns of a custom task.
  void declare(Arguments& arguments);
  /// --skip-bad-rows.
  void declare_bad_rows(Arguments& arguments);
  /// Throws InputError where --text-column and its like are given for a task that has its own layout.
  void refuse_columns(const Arguments& arguments) const;
  /// Throws InputError where --encoding or --quotes are given though no such files are read; `reason` says why.
  void refuse_style(const Arguments& arguments, const std::string& reason) const;
  /// Refuses columns as refuse_columns does.
  eval::Task task(const Arguments& arguments) const;
  /// `custom`, with how the files are written.
  eval::CustomColumns columns() const;

  /// The columns of a custom task, for config.json (key "funicular"); null for a task that has its own layout.
  Json note() const;
  /// Takes what `note` says (an object of config.json's key "funicular", its key "columns") for all that is not
  /// given. Throws InputError for a note that makes no sense.
  void take_note(const Json& note, const Arguments& arguments);
};

/// The key of TaskOptions::note within config.json's "funicular".
inline constexpr const char* kColumnsNote = "columns";

}  // namespace funicular::cli
