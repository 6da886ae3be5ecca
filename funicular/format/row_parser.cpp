#include "funicular/format/row_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/text_encoding.h"
#include "funicular/format/column_list.h"
#include "funicular/format/row_rules.h"
#include "funicular/text/utf8.h"

namespace funicular::format {

namespace {

constexpr const char* kArrayRemedy =
    "; is the file a JSON array? Expected one JSON object a line: pandas writes such lines with "
    "to_json(orient=\"records\", lines=True), jq -c '.[]' makes them of an array";

/// A few characters of the text, none of them cut.
std::string_view beginning(std::string_view text) {
  size_t size = std::min<size_t>(text.size(), 10);
  while (size < text.size() && text::continues_character(text[size])) --size;
  return text.substr(0, size);
}

}  // namespace

/// "" or where the row is not text in UTF-8.
std::string RowParser::encoding_problem(std::string_view row, std::string_view text) {
  // A line of text may hold one, which tokenisers drop; nothing but zeros are left where a file was not written to
  // its end.
  const bool may_hold_zeros = !has_columns(layout_.format) && row.find_first_not_of('\0') != row.npos;
  if (const size_t zero = row.find('\0'); zero != row.npos && !may_hold_zeros)
    return fmt::format(
        "expected text, found a zero byte as byte {} of the row; was the file cut short while it was "
        "written?",
        zero + 1);
  const size_t at = text::first_invalid_utf8(row);
  if (at == row.size()) return {};
  if (!layout_.encoding.empty() && row[at] == kUnconverted)
    return fmt::format("expected {}, found bytes behind byte {} of the row that are no character of it",
                       layout_.encoding, at);
  if (remedy_.empty()) remedy_ = encoding_remedy(text.empty() ? row : text);
  return fmt::format("expected UTF-8, found the byte 0x{:02X} as byte {} of the row; {}",
                     static_cast<unsigned char>(row[at]), at + 1, remedy_);
}

std::string RowParser::parse(std::string_view row, std::vector<std::string_view>& columns,
                             std::string_view text) {
  columns.clear();
  kept_.clear();
  problem_at_ = 0;
  if (std::string problem = encoding_problem(row, text); !problem.empty()) return problem;
  if (layout_.format == TextFormat::jsonl) return parse_object(row, columns);
  if (!has_columns(layout_.format)) {
    columns.push_back(row);
    return {};
  }
  fields_.clear();
  std::string problem = layout_.fields.quoted ? split_quoted(row) : split_plain(row);
  return problem.empty() ? select(columns) : problem;
}

std::string RowParser::add_plain(std::string_view field) {
  if (field.find('\r') != field.npos)
    return fmt::format(
        "column {}: a carriage return (CR) inside a line. End all lines in LF or CR LF, or put a field that "
        "holds a CR in quotes",
        fields_.size() + 1);
  fields_.push_back(field);
  return {};
}

std::string RowParser::split_plain(std::string_view row) {
  for (size_t begin = 0;;) {
    const size_t end = row.find(layout_.fields.separator, begin);
    const std::string_view field = row.substr(begin, end == row.npos ? row.npos : end - begin);
    if (std::string problem = add_plain(field); !problem.empty()) return problem;
    if (end == row.npos) return {};
    begin = end + 1;
  }
}

std::string_view RowParser::separator_name() const {
  return layout_.fields.separator == '\t' ? "tab" : layout_.fields.separator == ',' ? "comma" : "semicolon";
}

/// A field whose quote stands at `position`, which is moved behind the field.
std::string RowParser::take_quoted(std::string_view row, size_t& position) {
  const size_t begin = storage_[0].size();
  problem_at_ = position;
  for (++position;; ++position) {
    const size_t quote = row.find('"', position);
    if (quote == row.npos)
      return fmt::format(
          "column {}: a quote is opened and never closed; close it, or read quotes as text with "
          "--quotes none",
          fields_.size() + 1);
    storage_[0].append(row, position, quote - position);
    position = quote + 1;
    if (position == row.size() || row[position] != '"') break;
    storage_[0] += '"';
  }
  fields_.push_back(std::string_view(storage_[0]).substr(begin));
  if (position < row.size() && row[position] != layout_.fields.separator)
    return fmt::format(
        "column {}: expected a {} after the closing quote, found '{}'; double the quotes within a "
        "field in quotes",
        fields_.size(), separator_name(), beginning(row.substr(position)));
  return {};
}

std::string RowParser::take_plain(std::string_view row, size_t& position) {
  const size_t end = std::min(row.find(layout_.fields.separator, position), row.size());
  const std::string_view field = row.substr(position, end - position);
  problem_at_ = position;
  position = end;
  // Python's csv writes such tables with tabs, and reads these quotes as text.
  if (layout_.format == TextFormat::csv && field.find('"') != field.npos)
    return fmt::format(
        "column {}: a quote within an unquoted field; quote the whole field and double the quotes in it, or "
        "read "
        "quotes as text with --quotes none",
        fields_.size() + 1);
  return add_plain(field);
}

std::string RowParser::split_quoted(std::string_view row) {
  // Appends unescaped fields to one string. Its space is reserved, so that no view into it moves.
  storage_.resize(1);
  storage_[0].clear();
  storage_[0].reserve(row.size());
  for (size_t position = 0;;
       ++position) {  // behind a separator; a row that ends with one ends with an empty field
    std::string problem = position < row.size() && row[position] == '"' ? take_quoted(row, position)
                                                                        : take_plain(row, position);
    if (!problem.empty()) return problem;
    if (position >= row.size()) break;
  }
  problem_at_ = 0;
  return {};
}

std::string RowParser::shortage() const {
  if (!has_columns(layout_.format) || fields_.size() >= layout_.header.size()) return {};
  return fmt::format("{} columns", fields_.size());
}

void RowParser::keep_fields() {
  for (const size_t index : layout_.kept_indices) kept_.push_back(json_text(Json(fields_[index])));
}

bool RowParser::repeats_header() const {
  // With one column, the row may well be a text that equals the column's name.
  if (layout_.header.size() < 2 || fields_.size() != layout_.header.size()) return false;
  std::string_view first = fields_.front();
  if (first.starts_with(kByteOrderMark)) first.remove_prefix(kByteOrderMark.size());
  return first == layout_.header.front() &&
         std::equal(fields_.begin() + 1, fields_.end(), layout_.header.begin() + 1);
}

std::string RowParser::select(std::vector<std::string_view>& columns) {
  size_t last = 0;
  for (const size_t index : layout_.indices) last = std::max(last, index);
  for (const size_t index : layout_.kept_indices) last = std::max(last, index);
  // A row without any separator is most often a part of a text that holds a line end.
  const size_t least = std::max<size_t>(last + 1, 2);
  const bool early = may_end_early() && fields_.size() < layout_.header.size() && fields_.size() >= least;
  if (!layout_.header.empty() && fields_.size() != layout_.header.size() && !early)
    return fmt::format("expected {} {}-separated columns as in the header, found {}", layout_.header.size(),
                       separator_name(), fields_.size());
  if (repeats_header())
    return "the row repeats the header; delete it if files were joined, or give --no-header if line 1 is "
           "data";
  const bool chosen = !layout_.indices.empty() || !layout_.kept_indices.empty();
  if (chosen && last >= fields_.size())
    return fmt::format("expected at least {} {}-separated columns, found {}", last + 1, separator_name(),
                       fields_.size());
  if (layout_.indices.empty()) columns = fields_;
  for (const size_t index : layout_.indices) columns.push_back(fields_[index]);
  keep_fields();
  return {};
}

namespace {

/// The first integer of the row, outside strings, that has too many digits for 64 bits; "" if there is none.
std::string_view long_integer(std::string_view row) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr size_t kLongest = 20;  // digits of the largest number of 64 bits
  bool quoted = false;
  for (size_t at = 0; at < row.size(); ++at) {
    if (row[at] == '\\') {
      ++at;
    } else if (row[at] == '"') {
      quoted = !quoted;
    } else if (!quoted && kDigits.find(row[at]) != kDigits.npos) {
      const size_t end = std::min(row.find_first_not_of("0123456789+-.eE", at), row.size());
      const std::string_view number = row.substr(at, end - at);
      if (number.size() >= kLongest - 1 && number.find_first_not_of(kDigits) == number.npos) return number;
      at = end - 1;
    }
  }
  return {};
}

/// The functions return "" or what is wrong.
std::string text_of_value(const Json& value, std::string& text) {
  if (value.is_structured() || value.is_null())
    return fmt::format("expected a string or a number, found {}", value.type_name());
  text = value.is_string() ? value.get<std::string>() : value.dump();
  return {};
}

std::string text_of_list(const Json& list, std::string& text) {
  text = list.empty() ? std::string(1, kListMark) : std::string();
  std::string element;
  for (const Json& value : list) {
    if (std::string problem = text_of_value(value, element); !problem.empty()) return problem;
    if (element.find(kListMark) != element.npos)
      return "an element of the list holds a record separator (U+001E)";
    text += kListMark + element;
  }
  return {};
}

/// Returns a problem if the JSON parser made a float of an integer beyond 64 bits.
std::string problem_of_number(const std::string& key, const Json& value, std::string_view row) {
  if (!value.is_number_float() || std::abs(value.get<double>()) < 0x1p63) return {};
  const std::string_view number = long_integer(row);
  if (number.empty()) return {};
  return fmt::format(
      "the key \"{}\": the number {} has more digits than 64 bits hold; write it in quotes, as a string", key,
      number);
}

/// Names the keys of an object, at most as many as fit into a line.
std::string shown_keys(const Json& object) {
  constexpr size_t kMost = 12;
  std::string shown;
  size_t count = 0;
  for (const auto& [key, value] : object.items()) {
    if (count == kMost) return shown + ", …";
    shown += fmt::format("{}\"{}\"", count++ == 0 ? "the keys " : ", ", key);
  }
  return count == 0 ? "no keys" : shown;
}

/// Describes a row that is no JSON object. A list there most often means that the whole file is one list.
std::string not_an_object(const Json& value) {
  return fmt::format("expected a JSON object, found {}{}", value.type_name(),
                     value.is_array() ? kArrayRemedy : "");
}

}  // namespace

bool RowParser::may_be_list(size_t key) const {
  return layout_.lists == Lists::all || (layout_.lists == Lists::last && key + 1 == layout_.keys.size());
}

std::string RowParser::parse_object(std::string_view row, std::vector<std::string_view>& columns) {
  if (std::string problem = json_depth_problem(row); !problem.empty()) return problem;
  Json object;
  try {
    object = Json::parse(row.begin(), row.end());
  } catch (const nlohmann::json::exception& error) {
    const size_t first = row.find_first_not_of(" \t");
    return fmt::format("not valid JSON: {}{}", error.what(),
                       first != row.npos && row[first] == '[' ? kArrayRemedy : "");
  }
  if (!object.is_object()) return not_an_object(object);
  storage_.resize(layout_.keys.size());
  for (size_t i = 0; i < layout_.keys.size(); ++i) {
    const auto found = object.find(layout_.keys[i]);
    if (found == object.end())
      return fmt::format("the key \"{}\" is missing; found {}", layout_.keys[i], shown_keys(object));
    if (std::string problem = problem_of_number(layout_.keys[i], *found, row); !problem.empty())
      return problem;
    const std::string problem = found->is_array() && may_be_list(i) ? text_of_list(*found, storage_[i])
                                                                    : text_of_value(*found, storage_[i]);
    if (!problem.empty()) return fmt::format("the key \"{}\": {}", layout_.keys[i], problem);
  }
  for (const std::string& key : layout_.kept_keys) {
    const Json value = object.value(key, Json());
    if (std::string problem = problem_of_number(key, value, row); !problem.empty()) return problem;
    kept_.push_back(json_text(value));
  }
  columns.assign(storage_.begin(), storage_.end());
  return {};
}

}  // namespace funicular::format
