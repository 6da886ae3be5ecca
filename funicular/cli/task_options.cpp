#include "funicular/cli/task_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/data/named_tasks.h"
#include "funicular/task/table_guess.h"
#include "funicular/task/text_task.h"

namespace funicular::cli {

namespace {

/// The tasks that read an option: "--task spans".
std::string tasks_with(const std::string& option) {
  std::vector<std::string> found;
  for (const task::TaskType& type : task::task_types())
    if (std::find(type.options.begin(), type.options.end(), option) != type.options.end())
      found.push_back(type.asked_for());
  return fmt::format("{}", fmt::join(found, " or "));
}

}  // namespace

Option& TaskOptions::declare_name(Arguments& arguments, const std::vector<std::string>& names,
                                  std::string help) {
  Option& option = arguments.add("task", "NAME", name, Effect::result, std::move(help))
                       .common()
                       .alias("task-name")
                       .choices(names);
  const bool all = names.size() > task::text_task_names().size();
  for (const task::TaskType& type : task::task_types()) {
    const bool there =
        std::find(names.begin(), names.end(), type.option) != names.end() && (all || type.is_distilled);
    for (const std::string& name : type.foreign)
      option.foreign(name,
                     there ? fmt::format("write {} for {}, from {}", type.asked_for(), type.gives, type.reads)
                           : fmt::format("{} is for finetune, evaluate and predict", type.gives));
    if (!there) continue;
    for (const std::string& alias : type.aliases) option.accept(alias, type.option);
  }
  return option;
}

void TaskOptions::declare(Arguments& arguments) {
  arguments.section("Columns of a custom task, or of words with tags");
  arguments
      .add("text-column", "COLUMN", text, Effect::result,
           "one text column; two for pairs; more are joined into one text. A column is a name in the header, "
           "a JSON key, or a number from 1")
      .common()
      .alias("text-columns")
      .default_text("text; for tags the first column, or the key tokens");
  arguments.add("label-column", "COLUMN", label, Effect::result, "the column of the label")
      .common()
      .alias("label-column-name")
      .default_text("label; of tags the last column, or the key tags");
  arguments.add("format", "NAME", format, Effect::result, "format of the files")
      .choices({"tsv", "csv", "jsonl", "conll"})
      .default_text("by the file's name; of tags conll, but for .jsonl");
  arguments.add("header", header, Effect::result,
                "the first row of TSV and CSV names the columns; --no-header: it is data");
  arguments
      .add("regression", regression, Effect::result,
           "the labels are numbers that the model learns to give, and not classes")
      .alias("is-regression");
  arguments.add("multi-label", multi_label, Effect::result,
                "a row has any number of labels: in JSON lines a list, elsewhere separated");
  arguments.add("label-separator", "TEXT", label_separator, Effect::result,
                "separator between the labels of a row");
  arguments
      .add("stride", "TOKENS", stride, Effect::result,
           "custom tasks, tags, spans: read long texts in windows that share so many tokens (the overlap, as "
           "Hugging "
           "Face's stride)")
      .alias("doc-stride")
      .range(0, 1 << 20)
      .default_text("it is cut; spans: 128, at most half a window");
  written.declare(arguments);
}

void TaskOptions::declare_shares(Arguments& arguments, bool trains) {
  arguments
      .add("soft-columns", "COLUMN", shares.columns, Effect::result,
           "columns with the share of each class, in place of a label column; NAME* is all columns whose "
           "names "
           "start so")
      .default_text("none");
  arguments.add("soft-labels", shares.objects, Effect::result,
                "JSON lines: the label column holds an object with the share of each class, such as "
                "{\"pro\": 0.9, \"contra\": 0.1}");
  arguments.rivals({"soft-columns", "soft-labels"});
  arguments.add("normalize-shares", shares.normalize, Effect::result,
                "divide the shares of a row by their sum, such as votes; otherwise they must sum to 1");
  declared_shares_ = {"soft-columns", "soft-labels", "normalize-shares"};
  if (!trains) return;
  arguments
      .add("weight-column", "COLUMN", shares.weight, Effect::result,
           "the column of each row's weight, by which training counts it")
      .default_text("1 each");
  declared_shares_.emplace_back("weight-column");
}

void TaskOptions::declare_bad_rows(Arguments& arguments) {
  arguments.add("skip-bad-rows", skip_bad_rows.emplace(false), Effect::result,
                "leave out rows that cannot be read or have an unknown label, and tell which, instead of "
                "stopping at the first");
}

namespace {

/// The options that a task of this name reads. A task of known files reads --quotes alone.
std::vector<std::string> options_of(const std::string& name) {
  for (const task::TaskType& type : task::task_types())
    if (type.option == name) return type.options;
  return {"quotes"};
}

}  // namespace

void TaskOptions::refuse_columns(const Arguments& arguments) const {
  const std::vector<std::string> known = options_of(name);
  const auto refused = [&](const std::string& option) {
    return arguments.given(option) && std::find(known.begin(), known.end(), option) == known.end();
  };
  if (refused("quotes"))
    throw InputError("usage", "--quotes is for TSV and CSV; files of --task {} have no quotes", name);
  if (refused("stride"))
    throw InputError("usage", "--stride works only with {}, found --task {}", tasks_with("stride"), name);
  std::vector<std::string> options{"text-column", "label-column", "format",         "header",
                                   "regression",  "multi-label",  "label-separator"};
  options.insert(options.end(), declared_shares_.begin(), declared_shares_.end());
  for (const std::string& option : options)
    if (refused(option))
      throw InputError("usage", "--{} is for --task custom; {} has its own layout", option, name);
}

void TaskOptions::refuse_style(const Arguments& arguments, const std::string& reason) const {
  for (const char* option : {"encoding", "quotes"})
    if (arguments.given(option)) throw InputError("usage", "--{} is for files of rows; {}", option, reason);
}

task::FileOptions TaskOptions::files(const Arguments& arguments) const {
  task::FileOptions said{.text = text, .label = label, .format = format, .style = written.style()};
  said.stride = stride;
  said.shares = shares;
  if (shares.normalize && !shares.has_shares())
    throw InputError("usage", "--normalize-shares works only with --soft-columns or --soft-labels");
  if (shares.normalize && multi_label)
    throw InputError(
        "usage",
        "--normalize-shares works only with one class per text; with --multi-label each label has a "
        "share of its own. Leave --normalize-shares out");
  if (!shares.columns.empty() && arguments.given("label-column"))
    throw InputError(
        "usage",
        "--soft-columns and --label-column cannot be given together: the shares take the label's "
        "place. Leave --label-column out; finetune --eval-label-column names the label of --eval");
  if (arguments.given("header")) said.header = header;
  if (arguments.given("label-separator")) said.label_separator = label_separator;
  return said;
}

std::string TaskOptions::type() const {
  if (multi_label && regression)
    throw InputError("task",
                     "a text has several labels or a number to predict, not both; leave out one of "
                     "--multi-label and --regression");
  return multi_label ? "labels" : regression ? "numbers" : name;
}

std::shared_ptr<const task::Task> TaskOptions::task(const Arguments& arguments) const {
  refuse_columns(arguments);
  return task::find_task(type(), files(arguments));
}

std::shared_ptr<const task::Task> TaskOptions::task_of_rows(const fs::path& file,
                                                            const Arguments& arguments) {
  if (name.empty() && shares.has_shares())
    name = task::TextTask::kOption;  // its rows have no label to guess by
  if (!name.empty()) return task(arguments);
  std::string known = type();
  // --no-regression says that numbers are classes.
  if (known.empty() && arguments.given("regression")) known = "classes";
  const task::TableGuess guess = task::guess_task(file, files(arguments), known);
  name = guess.task->name();
  refuse_columns(arguments);
  if (!guess.said.empty()) log::info("{}", guess.said);
  return guess.task;
}

std::shared_ptr<const task::Task> TaskOptions::task_for(const model::Pretrained& pretrained,
                                                        const Arguments& arguments) {
  const model::TaskNote note = pretrained.note();
  if (name.empty()) name = note.task;
  if (name.empty())
    throw InputError("usage", "{} does not say what it was fine-tuned for; give --task",
                     pretrained.path().string());
  if (name != note.task) return task(arguments);
  refuse_columns(arguments);
  // The model decides what is not given.
  const std::string& own = task::type_of(pretrained.config()).more;
  if (!arguments.given("multi-label")) multi_label = own == "--multi-label";
  if (!arguments.given("regression")) regression = own == "--regression";
  task::FileOptions said = files(arguments);
  if (data::find_named_task(name)) return task::task_of(pretrained, std::move(said));
  said.fill_from(note.source);
  return task::find_task(type(), std::move(said));
}

std::shared_ptr<format::BadRows> TaskOptions::bad_rows() const {
  return skip_bad_rows ? std::make_shared<format::BadRows>(*skip_bad_rows) : nullptr;
}

}  // namespace funicular::cli
