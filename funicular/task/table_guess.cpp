#include "funicular/task/table_guess.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/task/column_facts.h"
#include "funicular/task/column_names.h"
#include "funicular/task/header_guess.h"
#include "funicular/task/registry.h"
#include "funicular/task/row_ids.h"

namespace funicular::task {

namespace {

/// Returns the word for a shell: in quotes if it needs them.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kSafe = "_-./:+@%,";
  const auto is_safe = [&](unsigned char c) {
    return (c < 0x80 && std::isalnum(c)) || c >= 0x80 || kSafe.find(static_cast<char>(c)) != kSafe.npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_safe)) return word;
  std::string quoted;
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + quoted + "'";
}

/// Related texts without a label are an embedder's rows. A column "positive" of few short cells may be a label.
void refuse_related_texts(const fs::path& file, const TableFacts& table) {
  const auto find = [&](std::string_view name) {
    return std::find_if(table.columns.begin(), table.columns.end(), [&](const ColumnFacts& column) {
      return plain_name(column.name) == name && column.filled * 2 > table.rows;
    });
  };
  const auto none = table.columns.end(), positive = find("positive"), negative = find("negative");
  const auto anchor = find("anchor") != none ? find("anchor") : find("query");
  if (anchor == none || positive == none || positive->looks_like_classes()) return;
  std::string columns = shell_word(anchor->name) + " " + shell_word(positive->name), margins;
  if (negative != none) {
    columns += " " + shell_word(negative->name);
    const auto margin = find("margin") != none ? find("margin") : find("margins");
    if (margin != none)
      margins = "; for its margins add --label-column " + shell_word(margin->name) + " --loss margin-mse";
  }
  throw InputError("task",
                   "{}: the columns {} hold related texts and no label; for an embedder give --task {} "
                   "--text-column {}{}{}",
                   file.string(), columns, negative == none ? "pairs" : "triplets", columns,
                   negative == none ? "" : "; for a reranker give --task reranker --text-column " + columns,
                   margins);
}

/// Two texts with a score may train an embedder, a reranker, or a model of numbers. `options` name the columns.
void refuse_scored_pairs(const fs::path& file, const ColumnFacts& score, const std::string& options) {
  if (plain_name(score.name) != "score" || !score.all_numbers() || score.fractions == 0) return;
  throw InputError(
      "task",
      "{}: two texts and a score may train several kinds of models. For an embedder give --task scores {}. "
      "For "
      "a reranker give --task reranker {}. For a number per pair give --task custom --regression {}",
      file.string(), options, options, options);
}

/// The guess about one table.
class Guess {
 public:
  Guess(const fs::path& file, const FileOptions& said)
      : file_(file), said_(said), table_(read_facts(file, said)), label_(none()) {}

  TableGuess take(const std::string& type);

 private:
  size_t none() const { return table_.columns.size(); }
  bool is_json() const { return table_.format == format::TextFormat::jsonl; }
  /// A column as options write it: its name, or its number from 1. A name of digits would be read as a number.
  std::string word(size_t column) const {
    const std::string& name = table_.columns[column].name;
    const bool digits = name.find_first_not_of("0123456789") == name.npos;
    return name.empty() || (digits && !is_json()) ? std::to_string(column + 1) : name;
  }
  std::string words(const std::vector<size_t>& columns) const {
    std::vector<std::string> all;
    for (const size_t column : columns) all.push_back(shell_word(word(column)));
    return fmt::format("{}", fmt::join(all, " "));
  }
  std::string all_columns() const;
  size_t find(const std::string& written) const;
  size_t by_name(std::string_view name) const;
  std::vector<size_t> free_columns(const Names& names) const;
  bool is_free(size_t column) const {
    return column != label_ && std::find(texts_.begin(), texts_.end(), column) == texts_.end();
  }
  [[noreturn]] void refuse(std::string_view what, std::string_view option,
                           const std::vector<size_t>& candidates) const;
  void take_what_is_said();
  void refuse_lists_of_texts() const;
  void find_texts_by_name();
  void find_label_by_name();
  void find_label_by_cells();
  void find_texts_by_cells();
  const TaskType& find_type(const std::string& type) const;
  void refuse_cells_that_are_no_numbers(const TaskType& type) const;
  [[noreturn]] void refuse_kinds(const std::vector<const TaskType*>& kinds) const;
  std::string said(const TaskType& type) const;
  std::string separator_of(const TaskType& type) const;
  std::string options_of(const TaskType& type) const;
  FileOptions files(const TaskType& type) const;

  const fs::path& file_;
  const FileOptions& said_;
  const TableFacts table_;
  std::vector<size_t> texts_;
  size_t label_;
};

size_t Guess::find(const std::string& written) const {
  for (size_t i = 0; i < table_.columns.size(); ++i)
    if (word(i) == written || std::to_string(i + 1) == written) return i;
  return none();
}

size_t Guess::by_name(std::string_view name) const {
  for (size_t i = 0; i < table_.columns.size(); ++i)
    if (is_free(i) && table_.columns[i].filled * 2 > table_.rows &&
        plain_name(table_.columns[i].name) == name)
      return i;
  return none();
}

std::vector<size_t> Guess::free_columns(const Names& names) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < table_.columns.size(); ++i)
    if (is_free(i) && table_.columns[i].filled > 0 && is_among(names, table_.columns[i].name))
      found.push_back(i);
  return found;
}

std::string Guess::all_columns() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < table_.columns.size(); ++i) all.push_back(fmt::format("\"{}\"", word(i)));
  return fmt::format("{}", fmt::join(all, ", "));
}

void Guess::refuse(std::string_view what, std::string_view option,
                   const std::vector<size_t>& candidates) const {
  std::vector<std::string> some;
  for (const size_t column : candidates)
    some.push_back(fmt::format("--{} {}", option, shell_word(word(column))));
  throw InputError(
      "task", "{}: which column is the {}? The columns are {}; give {}", file_.string(), what, all_columns(),
      some.empty() ? fmt::format("--{} COLUMN", option) : fmt::format("{}", fmt::join(some, " or ")));
}

void Guess::take_what_is_said() {
  const auto column = [this](const std::string& written) {
    const size_t found = find(written);
    if (found == none())
      throw InputError("task", "{}: there is no column \"{}\"; the columns are {}", file_.string(), written,
                       all_columns());
    return found;
  };
  if (!said_.label.empty()) label_ = column(said_.label);
  for (const std::string& written : said_.text) texts_.push_back(column(written));
}

/// Lists of texts beside a query are a reranker's rows, not classes.
void Guess::refuse_lists_of_texts() const {
  const size_t query = by_name("query"), text = by_name("text");
  if (!is_json() || query == none() || text == none() || table_.columns[text].lists == 0) return;
  throw InputError(
      "task",
      "{}: the column \"{}\" holds lists of texts beside the column \"{}\"; to train a reranker give --task "
      "reranker",
      file_.string(), word(text), word(query));
}

void Guess::find_texts_by_name() {
  if (!texts_.empty()) return;
  for (const auto& [first, second] : kPairs)
    if (by_name(first) != none() && by_name(second) != none()) {
      texts_ = {by_name(first), by_name(second)};
      return;
    }
  if (by_name(kTexts.front()) != none()) {
    texts_ = {by_name(kTexts.front())};
    return;
  }
  for (const Names* names : {&kTexts, &kShortTexts}) {
    const std::vector<size_t> found = free_columns(*names);
    if (found.size() > 1) refuse("text", "text-column", found);
    if (found.size() == 1) {
      texts_ = found;
      return;
    }
  }
}

void Guess::find_label_by_name() {
  if (label_ != none()) return;
  if (by_name(kLabels.front()) != none()) {
    label_ = by_name(kLabels.front());
    return;
  }
  const std::vector<size_t> found = free_columns(kLabels);
  if (found.size() > 1) refuse("label", "label-column", found);
  if (found.size() == 1) label_ = found.front();
}

/// Classes are short and repeat. If no column looks like classes, the message names the columns whose cells repeat.
void Guess::find_label_by_cells() {
  if (label_ != none()) return;
  std::vector<size_t> found, repeating;
  for (size_t i = 0; i < table_.columns.size(); ++i) {
    const ColumnFacts& column = table_.columns[i];
    if (is_free(i) && column.repeats() && column.values.size() > 1 && column.mean_words() < 5 &&
        !is_id_name(column.name)) {
      repeating.push_back(i);
      if (column.looks_like_classes()) found.push_back(i);
    }
  }
  if (found.size() != 1) refuse("label", "label-column", found.empty() ? repeating : found);
  label_ = found.front();
}

/// Texts have several words, or many characters of a script without blanks, and most of them differ.
void Guess::find_texts_by_cells() {
  if (!texts_.empty()) return;
  std::vector<size_t> found;
  for (size_t i = 0; i < table_.columns.size(); ++i) {
    const ColumnFacts& column = table_.columns[i];
    const bool is_prose = column.mean_words() >= 3 || column.mean_characters() >= 12;
    if (is_free(i) && is_prose && !column.repeats() && !column.all_numbers() && !is_id_name(column.name))
      found.push_back(i);
  }
  if (found.size() != 1) refuse("text", "text-column", found);
  texts_ = found;
}

const TaskType& Guess::find_type(const std::string& type) const {
  std::vector<const TaskType*> sure, possible;
  for (const TaskType& row : task_types()) {
    if (row.name == type) return row;
    const Suits suits = row.suits ? row.suits(table_.columns[label_]) : Suits::no;
    if (suits == Suits::yes) sure.push_back(&row);
    if (suits == Suits::perhaps) possible.push_back(&row);
  }
  if (sure.empty()) sure = possible;
  if (sure.size() != 1) refuse_kinds(sure);
  refuse_cells_that_are_no_numbers(*sure.front());
  return *sure.front();
}

/// Reading numbers would stop at the first cell that is not a number, so such a column is refused here.
void Guess::refuse_cells_that_are_no_numbers(const TaskType& type) const {
  const ColumnFacts& column = table_.columns[label_];
  if (type.more != "--regression" || column.all_numbers()) return;
  throw InputError(
      "task",
      "{}: {} of {} cells of the column \"{}\" are not numbers ({}). To learn the numbers, correct "
      "the cells, or give --regression --skip-bad-rows; to learn each cell as a class, give "
      "--no-regression",
      file_.string(), column.filled - column.numbers, column.filled, word(label_),
      shown_cells(column.not_numbers));
}

/// `kinds`: the tasks that the cells suit; empty: they suit none.
void Guess::refuse_kinds(const std::vector<const TaskType*>& kinds) const {
  std::vector<std::string> choices;
  for (const TaskType* row : kinds)
    choices.push_back(fmt::format("for {} give {}", row->gives, options_of(*row)));
  if (!choices.empty())
    throw InputError("task", "{}: the column \"{}\" may hold several kinds of labels: {}", file_.string(),
                     word(label_), fmt::join(choices, "; "));
  for (const TaskType& row : task_types()) {
    if (!row.suits || (row.more == "--regression" && !table_.columns[label_].mostly_numbers())) continue;
    choices.push_back(
        fmt::format("for {} give {}", row.gives, row.more.empty() ? "--no-regression" : row.more));
  }
  throw InputError("task",
                   "{}: the column \"{}\" has too many different cells, or too long ones, for a guess: {}",
                   file_.string(), word(label_), fmt::join(choices, "; "));
}

std::string Guess::separator_of(const TaskType& type) const {
  if (type.more != "--multi-label") return "";
  return said_.label_separator.empty() ? table_.columns[label_].separator() : said_.label_separator;
}

std::string Guess::options_of(const TaskType& type) const {
  std::string options = fmt::format("{} --text-column {} --label-column {}", type.asked_for(), words(texts_),
                                    shell_word(word(label_)));
  if (!table_.header && !is_json()) options += " --no-header";
  const std::string separator = separator_of(type);
  if (!separator.empty() && separator != ",") options += " --label-separator " + shell_word(separator);
  return options;
}

FileOptions Guess::files(const TaskType& type) const {
  FileOptions files = said_;
  if (!is_json()) files.header = table_.header;
  files.label = word(label_);
  files.text.clear();
  for (const size_t column : texts_) files.text.push_back(word(column));
  if (files.label_separator.empty()) files.label_separator = separator_of(type);
  return files;
}

std::string Guess::said(const TaskType& type) const {
  std::vector<std::string> unread;
  for (size_t i = 0; i < table_.columns.size(); ++i)
    if (is_free(i) && word(i) != said_.shares.weight) unread.push_back(word(i));
  return fmt::format("{}: {} rows; {}{} from the column{} {}, learnt from {}{}. Equivalent options: {}",
                     file_.string(), table_.rows,
                     table_.header || is_json() || said_.header
                         ? ""
                         : fmt::format("no header: the first row is data ({}); ", shown_cells(table_.first)),
                     type.gives, texts_.size() > 1 ? "s" : "", words(texts_), word(label_),
                     unread.empty() ? "" : fmt::format(" (not read: {})", fmt::join(unread, ", ")),
                     options_of(type));
}

TableGuess Guess::take(const std::string& type) {
  take_what_is_said();
  const bool is_open = type.empty() && said_.label.empty();
  if (type.empty()) refuse_lists_of_texts();
  if (is_open && said_.text.empty() && free_columns(kLabels).empty()) refuse_related_texts(file_, table_);
  find_label_by_name();
  find_texts_by_name();
  find_label_by_cells();
  find_texts_by_cells();
  if (is_open && texts_.size() == 2)
    refuse_scored_pairs(
        file_, table_.columns[label_],
        fmt::format("--text-column {} --label-column {}", words(texts_), shell_word(word(label_))));
  const TaskType& found = find_type(type);
  return {find_task(found.name, files(found)), said(found)};
}

}  // namespace

TableGuess guess_task(const fs::path& file, const FileOptions& said, const std::string& type) {
  for (const TaskType& row : task_types())
    if (type.empty() && row.reads_file && row.reads_file(file))
      return {find_task(row.name, said),
              fmt::format("{}: {} ({})", file.string(), row.gives, row.asked_for())};
  return Guess(file, said).take(type);
}

}  // namespace funicular::task
