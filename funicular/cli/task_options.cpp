#include "funicular/cli/task_options.h"

#include "funicular/base/error.h"

namespace funicular::cli {

void TaskOptions::declare_name(Arguments& arguments, std::vector<std::string> names) {
  arguments.add("task", "NAME", name, "the task").alias("task-name").choices(std::move(names)).required();
}

void TaskOptions::declare(Arguments& arguments) {
  arguments.section("Columns of a custom task");
  arguments
      .add("text-column", "COLUMN", custom.text,
           "one text column, or two for pairs: a name of the header, a JSON key, "
           "or a number from 1")
      .alias("text-columns")
      .default_text("text");
  arguments.add("label-column", "COLUMN", custom.label, "the column of the label").alias("label-column-name");
  arguments.add("format", "NAME", custom.format, "format of the files")
      .choices({"tsv", "csv", "jsonl"})
      .default_text("by the file's name");
  arguments.add("header", custom.header,
                "the first row of TSV and CSV names the columns; --no-header: it is data");
  arguments.add("multi-label", custom.multi_label,
                "a row has any number of labels: in JSON lines a list, elsewhere separated");
  arguments.add("label-separator", "TEXT", custom.label_separator, "what stands between the labels of a row");
}

void TaskOptions::refuse_columns(const Arguments& arguments) const {
  if (name == "custom") return;
  for (const char* option :
       {"text-column", "label-column", "format", "header", "multi-label", "label-separator"})
    if (arguments.given(option))
      throw InputError("usage", "--{} is for --task custom; {} has its own layout", option, name);
}

eval::Task TaskOptions::task(const Arguments& arguments) const {
  refuse_columns(arguments);
  return eval::find_task(name, custom);
}

}  // namespace funicular::cli
