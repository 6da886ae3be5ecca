#include "funicular/eval/tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/data/conll_source.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/objective/metrics.h"

namespace funicular::eval {

namespace {

using format::Column;

/// A task of the known layouts, with its metrics.
Task known_task(const std::string& name, std::vector<std::string> metrics, std::string best_metric) {
  data::TaskLayout layout = data::task_layout(name);
  return {name,
          std::move(layout.columns),
          std::move(layout.label_names),
          std::move(layout.spellings),
          std::move(metrics),
          std::move(best_metric)};
}

void make_regression(Task& task) {
  task.regression = true;
  task.metrics = objective::regression_metric_names();
  task.best_metric = "pearson";
}

Task custom_task(const CustomColumns& custom) {
  if (custom.multi_label && custom.regression)
    throw InputError("task",
                     "a text has several labels or a number to predict, not both; leave out one of "
                     "--multi-label and --regression");
  Task task{"custom", {}, {}, {}, {"accuracy", "macro_f1"}, "accuracy"};
  if (!custom.format.empty()) task.layout.format = format::text_format_from_name(custom.format);
  task.layout.header = custom.header;
  for (const auto& column : custom.text) task.layout.text_columns.push_back(format::column_from_text(column));
  if (custom.text.empty()) task.layout.text_columns.push_back(format::column_from_text("text"));
  task.layout.label_column = format::column_from_text(custom.label.empty() ? "label" : custom.label);
  if (custom.multi_label) {
    task.layout.lists = format::Lists::last;
    task.multi_label = true;
    task.label_separator = custom.label_separator;
    task.metrics = objective::multi_label_metric_names();
    task.best_metric =
        "average_precision";  // needs no threshold, and rare labels count as much as frequent ones
  }
  if (custom.regression) make_regression(task);
  return task;
}

/// Without columns where none are given: they depend on each file's format.
Task tag_task(const CustomColumns& custom) {
  if (custom.text.size() > 1)
    throw InputError("task", "words with tags are one column, found {} of --text-column", custom.text.size());
  Task task{kTagTask, {}, {}, {}, {}, ""};
  task.tags = true;
  task.conll = custom.format == "conll";
  if (!custom.format.empty() && !task.conll) {
    task.layout.format = format::text_format_from_name(custom.format);
    if (task.layout.format != format::TextFormat::jsonl)
      throw InputError("task", "files of words with tags need the format conll or jsonl; found {}",
                       custom.format);
  }
  for (const auto& column : custom.text) task.layout.text_columns.push_back(format::column_from_text(column));
  if (!custom.label.empty()) task.layout.label_column = format::column_from_text(custom.label);
  return task;
}

bool is_json_lines(const Task& task, const fs::path& file) {
  if (task.conll) return false;
  const std::string ending = format::ending_of(file);
  return task.layout.format || ending == ".jsonl" || ending == ".ndjson";
}

std::optional<size_t> numbered(const std::optional<Column>& column, const fs::path& file) {
  if (!column) return {};
  if (const auto* const number = std::get_if<size_t>(&*column)) return *number;
  throw InputError("task",
                   "{}: the columns of CoNLL's formats have no names, found \"{}\"; expected a number from 1",
                   file.string(), std::get<std::string>(*column));
}

/// Everything that decides the store's contents.
uint64_t store_key(const Task& task, const fs::path& file, const text::Tokenizer& tokenizer,
                   const std::vector<std::string>& labels) {
  std::string text =
      fmt::format("2 {} {} {} {}", hash_file(file), tokenizer.fingerprint(), task.layout.header,
                  task.layout.format ? static_cast<int>(*task.layout.format) : -1);
  text += file.extension().string();  // decides the format where none is given
  const auto add = [&text](const Column& column) {
    text += std::holds_alternative<size_t>(column) ? fmt::format(" #{}", std::get<size_t>(column))
                                                   : fmt::format(" \"{}\"", std::get<std::string>(column));
  };
  for (const Column& column : task.layout.text_columns) add(column);
  if (task.layout.label_column) add(*task.layout.label_column);
  for (const auto* list : {&task.spellings, &task.label_names, &labels})
    for (const std::string& label : *list) text += fmt::format(" {}:{}", label.size(), label);
  if (task.tags) text += task.conll ? " tags in columns, 2" : " tags, 2";
  if (task.layout.bad_rows && task.layout.bad_rows->skip()) text += " without bad rows";
  if (task.regression) text += " numbers";
  if (!task.layout.style.encoding.empty()) text += " in " + task.layout.style.encoding;
  if (task.layout.style.quotes != format::Quotes::automatic)
    text += fmt::format(" quotes {}", format::quotes_name(task.layout.style.quotes));
  if (task.multi_label) text += fmt::format(" sets by {}", task.label_separator);
  return hash_bytes(text);
}

void remove_older(const fs::path& folder, const std::string& name, const fs::path& keep) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().filename().string();
    if (entry.path() != keep && file.rfind(name + "-", 0) == 0 && entry.path().extension() == ".tokens")
      fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

const std::vector<std::string>& task_names() {
  static const std::vector<std::string> names{"cola", "sst2", "mrpc", "stsb", "rte", "custom"};
  return names;
}

std::vector<std::string> task_names_with_tags() {
  std::vector<std::string> names = task_names();
  names.emplace_back(kTagTask);
  return names;
}

namespace {

Task task_by_name(const std::string& name, const CustomColumns& custom) {
  if (name == "cola") return known_task(name, {"matthews_correlation", "accuracy"}, "matthews_correlation");
  if (name == "mrpc") return known_task(name, {"accuracy", "f1"}, "accuracy");
  if (name == "sst2" || name == "rte") return known_task(name, {"accuracy"}, "accuracy");
  if (name == "stsb") {
    Task task = known_task(name, {}, "");
    make_regression(task);
    return task;
  }
  if (name == "custom") return custom_task(custom);
  if (name == kTagTask) return tag_task(custom);
  const std::vector<std::string> names = task_names_with_tags();
  const std::string near = nearest(name, names.data(), names.data() + names.size());
  throw InputError("task", "unknown task \"{}\"{}; known are {}", name,
                   near.empty() ? "" : ", did you mean " + near + "?", fmt::join(names, ", "));
}

}  // namespace

Task find_task(const std::string& name, const CustomColumns& custom) {
  Task task = task_by_name(name, custom);
  task.layout.style = custom.style;
  return task;
}

TaskSource::TaskSource(const Task& task, const fs::path& file)
    : NamedLabelSource(file, task.layout, task.label_names, task.spellings) {}

std::unique_ptr<data::RowSource> open_tagged_rows(const Task& task, const fs::path& file, bool tagged,
                                                  std::function<void(const std::string&)> on_bad) {
  const auto& columns = task.layout;
  const std::optional<Column> word =
      columns.text_columns.empty() ? std::nullopt : std::optional(columns.text_columns.front());
  if (!is_json_lines(task, file))
    return std::make_unique<data::ConllSource>(
        file, data::ConllOptions{.word_column = numbered(word, file),
                                 .tag_column = numbered(columns.label_column, file),
                                 .tagged = tagged,
                                 .conll_u = data::is_conll_u(file),
                                 .encoding = columns.style.encoding,
                                 .bad_rows = columns.bad_rows,
                                 .on_bad = std::move(on_bad)});
  data::TextFileSourceOptions options;
  options.format = format::TextFormat::jsonl;
  options.lists = format::Lists::all;
  options.style = columns.style;
  options.bad_rows = columns.bad_rows;
  options.text_columns = {word.value_or("tokens")};
  if (tagged) options.label_column = columns.label_column.value_or("tags");
  return std::make_unique<data::TextFileSource>(std::vector<fs::path>{file}, std::move(options));
}

std::unique_ptr<data::RowSource> open_task_rows(const Task& task, const fs::path& file) {
  if (task.tags) return open_tagged_rows(task, file);
  return std::make_unique<TaskSource>(task, file);
}

std::shared_ptr<const data::TokenStore> open_task_store(const Task& task, const fs::path& file,
                                                        const std::string& name,
                                                        const text::Tokenizer& tokenizer,
                                                        const std::vector<std::string>& labels,
                                                        const fs::path& folder, bool verify) {
  const std::unique_ptr<data::RowSource> source = open_task_rows(task, file);
  const fs::path path =
      folder / fmt::format("{}-{}.tokens", name, hash_text(store_key(task, file, tokenizer, labels)));
  const auto build = [&](bool overwrite) {
    data::StoreBuildOptions options;
    options.overwrite = overwrite;
    options.labels = !source->has_labels() ? data::LabelKind::none
                     : task.tags           ? data::LabelKind::tags
                     : task.multi_label    ? data::LabelKind::sets
                     : task.regression     ? data::LabelKind::values
                                           : data::LabelKind::classes;
    if (source->has_labels()) options.label_names = labels;
    options.label_separator = task.label_separator;
    options.stop = [] { return interrupt_requested() != 0; };
    const InterruptGuard guard;
    const auto result = data::build_token_store(tokenizer, *source, path, options);
    log::info("tokenised {}: {} rows, {} tokens", file.string(), result.meta.rows, result.meta.tokens);
    if (result.skipped_rows > 0) log::warning("{}", task.layout.bad_rows->summary("left out", file.string()));
  };
  // Whole before it is used: only then it can be made again.
  const auto open = [&] {
    return data::TokenStore::open(path, {.verify_first = UINT64_MAX, .verify = verify});
  };
  std::shared_ptr<const data::TokenStore> store;
  if (!fs::exists(path)) {
    build(false);
    store = open();
  } else {
    try {
      store = open();
    } catch (const InputError& error) {
      log::warning("{}; it is made again from {}", error.what(), file.string());
      build(true);
      store = open();
    }
  }
  remove_older(folder, name, path);
  if (store->rows() == 0)
    throw InputError("task", "{}: no rows{}; expected at least one{}", file.string(),
                     task.layout.bad_rows && task.layout.bad_rows->count(file.string()) > 0
                         ? " but those that cannot be read"
                         : "",
                     task.layout.header ? " after the header" : "");
  return store;
}

}  // namespace funicular::eval
