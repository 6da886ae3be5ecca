#include "funicular/format/row_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "funicular/base/json.h"
#include "funicular/format/list.h"
#include "funicular/format/row_rules.h"
#include "funicular/text/utf8.h"

namespace funicular::format {

namespace {

constexpr const char* kArrayRemedy =
    "; is the file a JSON array? Expected one JSON object a line: pandas writes such lines with "
    "to_json(orient=\"records\", lines=True), jq -c '.[]' makes them of an array";

/// "" or where the row is not UTF-8.
std::string encoding_problem(std::string_view row) {
  const size_t at = text::first_invalid_utf8(row);
  if (at == row.size()) return {};
  return fmt::format(
      "expected UTF-8, found the byte 0x{:02X} as byte {} of the row; is the file in another encoding? "
      "iconv -f WINDOWS-1252 -t UTF-8 converts",
      static_cast<unsigned char>(row[at]), at + 1);
}

/// A few characters of the text, none of them cut.
std::string_view beginning(std::string_view text) {
  size_t size = std::min<size_t>(text.size(), 10);
  while (size < text.size() && text::continues_character(text[size])) --size;
  return text.substr(0, size);
}

}  // namespace

RowParser::RowParser(TextFormat format, std::vector<size_t> indices, std::vector<std::string> keys,
                     size_t header_columns, Lists lists, char separator)
    : format_(format),
      indices_(std::move(indices)),
      keys_(std::move(keys)),
      header_columns_(header_columns),
      lists_(lists),
      separator_(separator) {}

std::string RowParser::parse(std::string_view row, std::vector<std::string_view>& columns) {
  columns.clear();
  if (std::string problem = encoding_problem(row); !problem.empty()) return problem;
  if (format_ == TextFormat::jsonl) return parse_object(row, columns);
  if (!has_columns(format_)) {
    columns.push_back(row);
    return {};
  }
  fields_.clear();
  if (format_ == TextFormat::tsv) {
    split_tabs(row);
  } else if (std::string problem = split_quoted(row); !problem.empty()) {
    return problem;
  }
  return select(columns);
}

void RowParser::split_tabs(std::string_view row) {
  for (size_t begin = 0;;) {
    const size_t tab = row.find('\t', begin);
    fields_.push_back(row.substr(begin, tab == row.npos ? row.npos : tab - begin));
    if (tab == row.npos) return;
    begin = tab + 1;
  }
}

std::string RowParser::split_quoted(std::string_view row) {
  // Unescaped fields lie one after the other; reserved so that no view moves.
  storage_.resize(1);
  storage_[0].clear();
  storage_[0].reserve(row.size());
  for (size_t position = 0;;) {
    if (position < row.size() && row[position] == '"') {
      const size_t begin = storage_[0].size();
      for (++position;; ++position) {
        const size_t quote = row.find('"', position);
        if (quote == row.npos)
          return fmt::format("column {}: a quote is opened and never closed", fields_.size() + 1);
        storage_[0].append(row, position, quote - position);
        position = quote + 1;
        if (position == row.size() || row[position] != '"') break;
        storage_[0] += '"';
      }
      fields_.push_back(std::string_view(storage_[0]).substr(begin));
      if (position < row.size() && row[position] != separator_)
        return fmt::format("column {}: expected a {} after the closing quote, found '{}'", fields_.size(),
                           separator_ == ',' ? "comma" : "semicolon", beginning(row.substr(position)));
    } else {
      const size_t end = std::min(row.find(separator_, position), row.size());
      const std::string_view field = row.substr(position, end - position);
      if (field.find('"') != field.npos)
        return fmt::format(
            "column {}: a quote within an unquoted field; quote the whole field and double the quotes in it",
            fields_.size() + 1);
      fields_.push_back(field);
      position = end;
    }
    if (position >= row.size()) return {};
    ++position;  // the separator; a row that ends with one ends with an empty field
  }
}

std::string RowParser::select(std::vector<std::string_view>& columns) const {
  const char* separator = format_ == TextFormat::tsv ? "tab" : separator_ == ',' ? "comma" : "semicolon";
  if (header_columns_ > 0 && fields_.size() != header_columns_)
    return fmt::format("expected {} {}-separated columns as in the header, found {}", header_columns_,
                       separator, fields_.size());
  if (indices_.empty()) columns = fields_;
  for (const size_t index : indices_) {
    if (index >= fields_.size())
      return fmt::format("expected at least {} {}-separated columns, found {}",
                         *std::max_element(indices_.begin(), indices_.end()) + 1, separator, fields_.size());
    columns.push_back(fields_[index]);
  }
  return {};
}

namespace {

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

/// At most so many as fit into a line.
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

/// What a row that is no JSON object is. A list is most often a whole file.
std::string not_an_object(const Json& value) {
  return fmt::format("expected a JSON object, found {}{}", value.type_name(),
                     value.is_array() ? kArrayRemedy : "");
}

}  // namespace

bool RowParser::may_be_list(size_t key) const {
  return lists_ == Lists::all || (lists_ == Lists::last && key + 1 == keys_.size());
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
  storage_.resize(keys_.size());
  for (size_t i = 0; i < keys_.size(); ++i) {
    const auto found = object.find(keys_[i]);
    if (found == object.end())
      return fmt::format("the key \"{}\" is missing; found {}", keys_[i], shown_keys(object));
    const std::string problem = found->is_array() && may_be_list(i) ? text_of_list(*found, storage_[i])
                                                                    : text_of_value(*found, storage_[i]);
    if (!problem.empty()) return fmt::format("the key \"{}\": {}", keys_[i], problem);
  }
  columns.assign(storage_.begin(), storage_.end());
  return {};
}

}  // namespace funicular::format
