#include "funicular/task/text_task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "funicular/base/error.h"
#include "funicular/format/family.h"
#include "funicular/model/heads.h"
#include "funicular/task/text_report.h"

namespace funicular::task {

namespace {

data::TextFileSourceOptions layout_of(const FileOptions& files, const data::NamedTask* named) {
  data::TextFileSourceOptions layout = named ? named->columns : data::TextFileSourceOptions{};
  if (!named) {
    layout.header = true;
    layout.text_columns = {"text"};
    layout.label_column = "label";
  }
  if (!files.format.empty()) layout.format = format::text_format_from_name(files.format);
  if (files.header) layout.header = *files.header;
  if (!files.text.empty()) layout.text_columns.clear();
  for (const std::string& column : files.text)
    layout.text_columns.push_back(format::column_from_text(column));
  if (!files.label.empty()) layout.label_column = format::column_from_text(files.label);
  layout.style = files.style;
  return layout;
}

}  // namespace

TextTask::TextTask(const TaskType& type, FileOptions files, const data::NamedTask* named)
    : Task(type, named ? named->name : "custom", std::move(files)),
      named_(named),
      layout_(layout_of(this->files(), named)) {
  if (this->files().stride && texts() != 1)
    throw InputError(
        "usage",
        "--stride reads windows of single texts, and the windows of rows with two text columns are "
        "ambiguous. Leave out --stride and shorten the second text by --truncation only_second, or join "
        "the columns into one text");
}

const std::vector<std::string>& TextTask::label_names() const {
  return named_ ? named_->label_names : Task::label_names();
}

const std::vector<std::string>& TextTask::spellings() const {
  return named_ ? named_->spellings : Task::spellings();
}

data::TextFileSourceOptions TextTask::columns() const {
  data::TextFileSourceOptions columns = layout_;
  columns.lists = lists();
  return columns;
}

std::optional<data::TextFileSourceOptions> TextTask::table(const fs::path& /*file*/) const {
  data::TextFileSourceOptions table = columns();
  if (files().shares.has_shares()) table.label_column.reset();  // there is none, or it holds objects
  return table;
}

std::unique_ptr<data::RowSource> TextTask::open_rows(const fs::path& file, const RowsOptions& options) const {
  data::TextFileSourceOptions layout = columns();
  layout.bad_rows = options.bad_rows;
  if (!options.labelled) layout.label_column.reset();
  std::unique_ptr<data::RowSource> rows;
  if (files().shares.any() && options.labelled)
    rows = std::make_unique<data::ShareSource>(file, std::move(layout), files().shares,
                                               label_kind() == data::LabelKind::set_shares, options.labels);
  else if (named_)
    rows = std::make_unique<data::NamedLabelSource>(file, layout, named_->label_names, named_->spellings);
  else
    rows = std::make_unique<data::TextFileSource>(std::vector<fs::path>{file}, std::move(layout));
  return own_side(std::move(rows));
}

objective::SoftLabels TextTask::soft_labels(const ObjectiveOptions& options) const {
  objective::SoftLabels soft = options.soft;
  soft.shares = soft.shares || files().shares.has_shares();
  soft.weights = soft.weights || !files().shares.weight.empty();
  return soft;
}

objective::SequenceOptions TextTask::sequence_of(const ObjectiveOptions& options) const {
  objective::SequenceOptions sequence = options.sequence;
  sequence.stride = files().stride;
  return sequence;
}

std::unique_ptr<Metrics> TextTask::over_windows(const data::Dataset& samples, Metrics& of_texts,
                                                const Json& note) const {
  if (!files().stride) return nullptr;
  const bool trained = note.is_object();
  const std::vector<Combination>& known = combinations_of(score_kind());
  const std::optional<Combination> how =
      trained ? combination_in(note).value_or(known.front()) : std::optional<Combination>();
  return std::make_unique<WindowMetrics>(dynamic_cast<const objective::TextWindows&>(samples), of_texts,
                                         score_kind(), how, metrics({}).best);
}

std::unique_ptr<Answers> TextTask::answers(std::vector<std::string> labels, const Json& note) const {
  auto own = answers_to_texts(std::move(labels), note);
  if (!files().stride) return own;
  return std::make_unique<WindowAnswers>(std::move(own), *files().stride, score_kind(), combination_in(note));
}

Json TextTask::note() const {
  if (named_) return nullptr;
  FileOptions noted = files();
  if (noted.text.empty()) noted.text = {"text"};
  if (noted.label.empty()) noted.label = "label";
  return noted.note();
}

void TextTask::check_training(const FileRows& rows) const {
  require_texts(rows.store, rows.file);
}

void TextTask::describe_in(format::ModelConfig& config, const std::vector<std::string>& labels) const {
  config.id2label = labels;
  config.num_labels = static_cast<int>(labels.size());
  config.problem_type = problem_type();
  config.architectures = {format::family_of(config).class_of(model::Head::classification.architecture)};
}

// ---- rows to answer

namespace {

format::TextFormat format_of(const InputOptions& options) {
  if (!options.format.empty()) return format::text_format_from_name(options.format);
  if (options.path.empty() || options.pairs) return format::TextFormat::lines;
  const format::TextFormat guess = format::guess_text_format(options.path);
  return guess == format::TextFormat::text ? format::TextFormat::lines : guess;
}

size_t texts_of_line(const InputOptions& options) {
  return options.pairs.value_or(options.texts == 2) ? 2 : 1;
}

}  // namespace

/// Lines have no columns.
format::TextOptions TextTask::lines_layout(const InputOptions& options) const {
  const std::pair<const char*, bool> of_tables[] = {{"text-column", !options.text.empty()},
                                                    {"keep", !options.keep.empty()},
                                                    {"header", options.header.has_value()}};
  for (const auto& [option, given] : of_tables)
    if (given)
      throw InputError("usage",
                       "--{} is for tables, and --input is read as lines; give --format tsv, csv or jsonl",
                       option);
  format::TextOptions layout;
  layout.format = format::TextFormat::lines;
  layout.style = options.style;
  layout.keep_blank_lines = true;  // each line has an answer
  if (texts_of_line(options) == 1) {
    if (options.style.quotes != format::Quotes::automatic)
      throw InputError("usage",
                       "--quotes is for tables, and --input is read as lines; give --format tsv or csv");
    return layout;
  }
  layout.format = format::TextFormat::tsv;
  if (layout.style.quotes == format::Quotes::automatic) layout.style.quotes = format::Quotes::none;
  return layout;
}

/// A table has the columns of fine-tuning, unless columns are given.
format::TextOptions TextTask::table_layout(const InputOptions& options, format::TextFormat format) const {
  if (options.pairs)
    throw InputError("usage", "--pairs is for lines; give the columns of {} with --text-column",
                     format::text_format_name(format));
  format::TextOptions layout;
  layout.format = format;
  layout.style = options.style;
  layout.header = options.header.value_or(layout_.header) && format != format::TextFormat::jsonl;
  layout.columns = layout_.text_columns;
  if (!options.text.empty()) layout.columns.clear();
  for (const std::string& column : options.text) layout.columns.push_back(format::column_from_text(column));
  if (options.texts > 0 && format::texts_of_columns(layout.columns.size()) != options.texts)
    throw InputError("usage", "{} was fine-tuned on {}; give as many with --text-column",
                     options.model.string(), options.texts == 2 ? "pairs of texts" : "single texts");
  return layout;
}

std::unique_ptr<RowInput> TextTask::open_input(const InputOptions& options) const {
  const format::TextFormat format = format_of(options);
  const bool lines = format == format::TextFormat::lines;
  format::TextOptions layout = lines ? lines_layout(options) : table_layout(options, format);
  layout.bad_rows = options.bad_rows;
  const size_t columns = lines ? texts_of_line(options) : layout.columns.size();
  return std::make_unique<TextInput>(options.path, layout, columns, KeptColumns(options.keep, *this));
}

}  // namespace funicular::task
