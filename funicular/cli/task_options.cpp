#include "funicular/cli/task_options.h"

#include <algorithm>
#include <memory>

#include "funicular/base/error.h"

namespace funicular::cli {

Option& TaskOptions::declare_name(Arguments& arguments, std::vector<std::string> names) {
  return arguments.add("task", "NAME", name, "the task").alias("task-name").choices(std::move(names));
}

void TaskOptions::declare(Arguments& arguments) {
  arguments.section("Columns of a custom task, or of words with tags");
  arguments
      .add("text-column", "COLUMN", custom.text,
           "one text column, or two for pairs, or more, which are joined into one text: a name of the "
           "header, a "
           "JSON key, or a number from 1")
      .alias("text-columns")
      .default_text("text; of tags the first column, or the key tokens");
  arguments.add("label-column", "COLUMN", custom.label, "the column of the label")
      .alias("label-column-name")
      .default_text("label; of tags the last column, or the key tags");
  arguments.add("format", "NAME", custom.format, "format of the files")
      .choices({"tsv", "csv", "jsonl", "conll"})
      .default_text("by the file's name; of tags conll, but for .jsonl");
  arguments.add("header", custom.header,
                "the first row of TSV and CSV names the columns; --no-header: it is data");
  arguments
      .add("regression", custom.regression,
           "the labels are numbers that the model learns to give, and not classes")
      .alias("is-regression");
  arguments.add("multi-label", custom.multi_label,
                "a row has any number of labels: in JSON lines a list, elsewhere separated");
  arguments.add("label-separator", "TEXT", custom.label_separator, "what stands between the labels of a row");
  written.declare(arguments);
}

void TaskOptions::declare_bad_rows(Arguments& arguments) {
  arguments.add("skip-bad-rows", skip_bad_rows.emplace(false),
                "leave out rows that cannot be read or have an unknown label, and tell which, instead of "
                "stopping at the first");
}

void TaskOptions::refuse_columns(const Arguments& arguments) const {
  if (name == eval::kTagTask && arguments.given("quotes"))
    throw InputError("usage", "--quotes is for TSV and CSV; files of words with tags have no quotes");
  if (name == "custom") return;
  const std::vector<std::string> of_tags{"text-column", "label-column", "format"};
  for (const char* option :
       {"text-column", "label-column", "format", "header", "regression", "multi-label", "label-separator"})
    if (arguments.given(option) &&
        !(name == eval::kTagTask && std::find(of_tags.begin(), of_tags.end(), option) != of_tags.end()))
      throw InputError("usage", "--{} is for --task custom; {} has its own layout", option, name);
}

void TaskOptions::refuse_style(const Arguments& arguments, const std::string& reason) const {
  for (const char* option : {"encoding", "quotes"})
    if (arguments.given(option)) throw InputError("usage", "--{} is for files of rows; {}", option, reason);
}

eval::Task TaskOptions::task(const Arguments& arguments) const {
  refuse_columns(arguments);
  eval::Task task = eval::find_task(name, columns());
  if (skip_bad_rows) task.layout.bad_rows = std::make_shared<format::BadRows>(*skip_bad_rows);
  return task;
}

eval::CustomColumns TaskOptions::columns() const {
  eval::CustomColumns columns = custom;
  columns.style = written.style();
  return columns;
}

Json TaskOptions::note() const {
  const bool tags = name == eval::kTagTask;
  if (name != "custom" && !tags) return nullptr;
  // Of tags the columns depend on each file's format unless they are given.
  return {{"text", custom.text.empty() && !tags ? std::vector<std::string>{"text"} : custom.text},
          {"label", custom.label.empty() && !tags ? "label" : custom.label},
          {"header", custom.header},
          {"label_separator", custom.label_separator}};
}

void TaskOptions::take_note(const Json& note, const Arguments& arguments) {
  if (!note.is_object() || !note.contains(kColumnsNote)) return;
  constexpr const char* kOrigin = "config.json (key \"funicular\")";
  const Json& columns = note[kColumnsNote];
  if (!columns.is_object())
    throw InputError("config", "{}: expected an object as \"{}\"", kOrigin, kColumnsNote);
  if (!arguments.given("text-column"))
    custom.text = json_get<std::vector<std::string>>(columns, "text", kOrigin);
  if (!arguments.given("label-column")) custom.label = json_get<std::string>(columns, "label", kOrigin);
  if (!arguments.given("header")) custom.header = json_get<bool>(columns, "header", kOrigin);
  if (!arguments.given("label-separator"))
    custom.label_separator = json_get<std::string>(columns, "label_separator", kOrigin);
}

}  // namespace funicular::cli
