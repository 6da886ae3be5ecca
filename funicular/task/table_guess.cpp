#include "funicular/task/table_guess.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/task/column_facts.h"
#include "funicular/task/registry.h"
#include "funicular/task/row_ids.h"

namespace funicular::task {

namespace {

using Names = std::vector<std::string_view>;

// Names of columns, in the form that plain() gives. "text" and "label" come before all others.
const Names kLabels{"label",     "labels",    "class",     "classes",  "category", "categories", "target",
                    "sentiment", "rating",    "stars",     "score",    "topic",    "intent",     "tag",
                    "tags",      "genre",     "polarity",  "emotion",  "priority", "y",          "gold",
                    "goldlabel", "labelname", "classname", "labeltext"};
const Names kTexts{"text",    "sentence", "review",     "content",   "comment",  "body",
                   "message", "tweet",    "document",   "utterance", "question", "query",
                   "post",    "abstract", "reviewtext", "fulltext"};
/// Names of columns that often stand beside the text.
const Names kShortTexts{"title", "headline", "subject", "description", "summary"};
const std::vector<std::pair<std::string_view, std::string_view>> kPairs{
    {"sentence1", "sentence2"}, {"text1", "text2"},         {"texta", "textb"},   {"question1", "question2"},
    {"premise", "hypothesis"},  {"sentencea", "sentenceb"}, {"query", "passage"}, {"question", "sentence"},
    {"first", "second"},        {"question", "answer"}};

/// Letters and digits in small letters: "Review_Text" is "reviewtext".
std::string plain(std::string_view name) {
  std::string text;
  for (const unsigned char c : name)
    if (std::isalnum(c) || c >= 0x80) text += static_cast<char>(std::tolower(c));
  return text;
}

bool is_among(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), plain(name)) != names.end();
}

/// The guess about one table.
class Guess {
 public:
  Guess(const fs::path& file, const FileOptions& said)
      : file_(file), said_(said), table_(read_facts(file, said)), label_(none()) {}

  TableGuess take(const std::string& type);

 private:
  size_t none() const { return table_.columns.size(); }
  /// A column as options write it: its name, or its number from 1.
  std::string word(size_t column) const {
    const std::string& name = table_.columns[column].name;
    return name.empty() ? std::to_string(column + 1) : name;
  }
  std::string words(const std::vector<size_t>& columns) const {
    std::vector<std::string> all;
    for (const size_t column : columns) all.push_back(word(column));
    return fmt::format("{}", fmt::join(all, " "));
  }
  size_t find(const std::string& written) const;
  size_t by_name(std::string_view name) const;
  std::vector<size_t> free_columns(const Names& names) const;
  bool is_free(size_t column) const {
    return column != label_ && std::find(texts_.begin(), texts_.end(), column) == texts_.end();
  }
  [[noreturn]] void refuse(std::string_view what, std::string_view option,
                           const std::vector<size_t>& candidates) const;
  void take_what_is_said();
  void find_texts_by_name();
  void find_label_by_name();
  void find_label_by_cells();
  void find_texts_by_cells();
  const TaskType& find_type(const std::string& type) const;
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
    if (is_free(i) && plain(table_.columns[i].name) == name) return i;
  return none();
}

std::vector<size_t> Guess::free_columns(const Names& names) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < table_.columns.size(); ++i)
    if (is_free(i) && table_.columns[i].filled > 0 && is_among(names, table_.columns[i].name))
      found.push_back(i);
  return found;
}

void Guess::refuse(std::string_view what, std::string_view option,
                   const std::vector<size_t>& candidates) const {
  std::vector<std::string> all, some;
  for (size_t i = 0; i < table_.columns.size(); ++i) all.push_back(fmt::format("\"{}\"", word(i)));
  for (const size_t column : candidates) some.push_back(fmt::format("--{} {}", option, word(column)));
  throw InputError(
      "task", "{}: which column is the {}? The columns are {}; give {}", file_.string(), what,
      fmt::join(all, ", "),
      some.empty() ? fmt::format("--{} COLUMN", option) : fmt::format("{}", fmt::join(some, " or ")));
}

/// A column that is no column of the file is told by whoever reads the rows.
void Guess::take_what_is_said() {
  if (!said_.label.empty()) label_ = find(said_.label);
  for (const std::string& written : said_.text) texts_.push_back(find(written));
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

/// Classes are short and repeat.
void Guess::find_label_by_cells() {
  if (label_ != none()) return;
  std::vector<size_t> found;
  for (size_t i = 0; i < table_.columns.size(); ++i) {
    const ColumnFacts& column = table_.columns[i];
    if (is_free(i) && column.repeats() && column.values.size() > 1 && column.mean_words() < 5 &&
        !is_id_name(column.name))
      found.push_back(i);
  }
  if (found.size() != 1) refuse("label", "label-column", found);
  label_ = found.front();
}

/// Texts have several words, or letters of a script without blanks, and most of them differ.
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
  if (sure.size() == 1) return *sure.front();
  std::vector<std::string> choices;
  for (const TaskType* row : sure)
    choices.push_back(fmt::format("for {} give {}", row->gives, options_of(*row)));
  throw InputError("task", "{}: the column \"{}\" may hold several kinds of labels: {}", file_.string(),
                   word(label_),
                   choices.empty() ? "give --task" : fmt::format("{}", fmt::join(choices, "; ")));
}

std::string Guess::options_of(const TaskType& type) const {
  return fmt::format("{} --text-column {} --label-column {}{}", type.asked_for(), words(texts_), word(label_),
                     table_.header || table_.format == format::TextFormat::jsonl ? "" : " --no-header");
}

FileOptions Guess::files(const TaskType& type) const {
  FileOptions files = said_;
  if (table_.format != format::TextFormat::jsonl) files.header = table_.header;
  files.label = word(label_);
  files.text.clear();
  for (const size_t column : texts_) files.text.push_back(word(column));
  if (type.name == "labels" && files.label_separator.empty())
    files.label_separator = table_.columns[label_].separator();
  return files;
}

TableGuess Guess::take(const std::string& type) {
  take_what_is_said();
  const auto is_wrong = [&](size_t column) { return column == none(); };
  if (std::any_of(texts_.begin(), texts_.end(), is_wrong) || (!said_.label.empty() && label_ == none()))
    return {find_task(type.empty() ? "classes" : type, said_),
            ""};  // whoever opens the rows names the column
  find_label_by_name();
  find_texts_by_name();
  find_label_by_cells();
  find_texts_by_cells();
  const TaskType& found = find_type(type);
  std::vector<std::string> unread;
  for (size_t i = 0; i < table_.columns.size(); ++i)
    if (is_free(i)) unread.push_back(word(i));
  return {
      find_task(found.name, files(found)),
      fmt::format("{}: {} rows; {} from the column{} {}, learnt from {}{}. The same in options: {}",
                  file_.string(), table_.rows, found.gives, texts_.size() > 1 ? "s" : "", words(texts_),
                  word(label_), unread.empty() ? "" : fmt::format(" (not read: {})", fmt::join(unread, ", ")),
                  options_of(found))};
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
