#include "funicular/cli/answer_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/cli/output_paths.h"
#include "funicular/task/registry.h"

namespace funicular::cli {

namespace {

std::string quoted_if_needed(const std::string& cell, char separator) {
  if (cell.find_first_of(std::string("\"\r\n") + separator) == cell.npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::string cell_of(const OrderedJson& value, const std::string& separator) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const OrderedJson& element : value)
    text += (text.empty() ? "" : separator) + cell_of(element, separator);
  return text;
}

/// "ID": "ANSWER"
std::string keyed_member(const OrderedJson& answer) {
  if (!answer.contains("id") || !answer.contains("answer"))
    throw InputError("usage", "a file {{id: answer}} needs questions with an id, found the answer {}",
                     answer.dump());
  const OrderedJson& id = answer["id"];
  return fmt::format("{}: {}", json_text(Json(id.is_string() ? id.get<std::string>() : id.dump())),
                     answer["answer"].dump());
}

bool is_keyed(const task::TaskType& type, const fs::path& file) {
  return !type.keyed_ending.empty() && file.filename().string().ends_with(type.keyed_ending);
}

template <class Use>
void for_each_line(std::string_view lines, const Use& use) {
  for (size_t end; (end = lines.find('\n')) != lines.npos; lines.remove_prefix(end + 1))
    use(lines.substr(0, end));
}

}  // namespace

AnswerFormat answer_format(const fs::path& file, const char* option) {
  const std::string ending = require_ending(file, option, {"jsonl", "ndjson", "json", "csv", "tsv"});
  const auto keyed = [&](const task::TaskType& type) { return is_keyed(type, file); };
  if (ending == "json")
    return std::ranges::any_of(task::task_types(), keyed) ? AnswerFormat::keyed : AnswerFormat::json;
  if (ending == "csv") return AnswerFormat::csv;
  return ending == "tsv" ? AnswerFormat::tsv : AnswerFormat::json_lines;
}

const std::vector<std::string>& answer_format_names() {
  static const std::vector<std::string> names{"jsonl", "json", "csv", "tsv"};
  return names;
}

AnswerFormat answer_format(const std::string& name, const fs::path& file, const char* option) {
  return name.empty() ? answer_format(file, option) : answer_format(fs::path("answers." + name), option);
}

std::string answer_endings() {
  std::string endings = ".jsonl, .json, .csv, .tsv";
  for (const task::TaskType& type : task::task_types())
    if (!type.keyed_ending.empty())
      endings +=
          fmt::format(", or, with {}, {} for one object {{id: answer}}", type.asked_for(), type.keyed_ending);
  return endings;
}

void check_answer_format(AnswerFormat format, const task::Task& task, const fs::path& file,
                         const char* option) {
  if (format == AnswerFormat::keyed && !is_keyed(task.type(), file))
    throw InputError(
        "usage",
        "{} {}: answers of {} have no form {{id: answer}}; expected a name that ends in .jsonl or .json "
        "alone",
        option, file.string(), task.type().asked_for());
  if (!task.fits_tables() && (format == AnswerFormat::csv || format == AnswerFormat::tsv))
    throw InputError(
        "usage",
        "{} {}: the words of a text and their tags are lists, which a table cannot hold; expected {}", option,
        file.string(), file.has_extension() ? "a name that ends in .jsonl or .json" : "jsonl or json");
}

AnswerText::AnswerText(AnswerFormat format, std::string_view example, bool errors, std::string separator)
    : format_(format), separator_(std::move(separator)) {
  const auto add = [&](const std::string& key, const std::string& member) {
    keys_.push_back(key);
    members_.push_back(member);
    names_.push_back(member.empty() ? key : key + "_" + member);
  };
  const auto answer = OrderedJson::parse(example);
  for (const auto& [key, value] : answer.items()) {
    if (!value.is_object()) add(key, "");
    if (value.is_object())
      for (const auto& [member, inner] : value.items()) add(key, member);
  }
  if (errors) add("error", "");
}

std::string AnswerText::row_of(const std::vector<std::string>& cells) const {
  const char between = format_ == AnswerFormat::tsv ? '\t' : ',';
  std::string row;
  for (const std::string& cell : cells)
    row += (&cell == &cells.front() ? "" : std::string(1, between)) + quoted_if_needed(cell, between);
  return row + "\n";
}

std::string AnswerText::table_row(const OrderedJson& answer) const {
  std::vector<std::string> cells;
  for (size_t at = 0; at < keys_.size(); ++at) {
    OrderedJson value = answer.value(keys_[at], OrderedJson());
    if (!members_[at].empty())
      value = value.is_object() ? value.value(members_[at], OrderedJson()) : OrderedJson();
    cells.push_back(cell_of(value, separator_));
  }
  return row_of(cells);
}

std::string AnswerText::begin() const {
  if (format_ == AnswerFormat::json_lines) return "";
  if (format_ == AnswerFormat::keyed) return "{";
  return format_ == AnswerFormat::json ? "[" : row_of(names_);
}

std::string AnswerText::rows(std::string_view lines) {
  if (format_ == AnswerFormat::json_lines) return std::string(lines);
  std::string text;
  for_each_line(lines, [&](std::string_view line) {
    if (format_ == AnswerFormat::json)
      text += fmt::format("{}\n{}", first_ ? "" : ",", line);
    else if (format_ == AnswerFormat::keyed)
      text += fmt::format("{}\n{}", first_ ? "" : ",", keyed_member(OrderedJson::parse(line)));
    else
      text += table_row(OrderedJson::parse(line));
    first_ = false;
  });
  return text;
}

std::string AnswerText::end() const {
  if (format_ == AnswerFormat::keyed) return "\n}\n";
  return format_ == AnswerFormat::json ? "\n]\n" : "";
}

std::string AnswerText::whole(std::string_view lines) {
  std::string text = begin();
  text += rows(lines);
  return text + end();
}

}  // namespace funicular::cli
