#include "funicular/format/text_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "funicular/base/columnar_file.h"
#include "funicular/base/decompressor.h"
#include "funicular/base/error.h"
#include "funicular/base/foreign_file.h"
#include "funicular/base/number.h"

namespace funicular::format {

namespace {

constexpr std::array<std::string_view, 5> kFormatNames = {"text", "lines", "tsv", "csv", "jsonl"};

}  // namespace

std::string_view text_format_name(TextFormat format) {
  return kFormatNames[static_cast<size_t>(format)];
}

TextFormat text_format_from_name(std::string_view name) {
  const auto found = std::find(kFormatNames.begin(), kFormatNames.end(), name);
  if (found != kFormatNames.end()) return static_cast<TextFormat>(found - kFormatNames.begin());
  const std::vector<std::string> names(kFormatNames.begin(), kFormatNames.end());
  const std::string near = nearest(name, names.data(), names.data() + names.size());
  throw InputError("text", "unknown text format \"{}\"; expected one of {}{}", name, fmt::join(names, ", "),
                   near.empty() ? "" : "; did you mean " + near + "?");
}

std::string ending_of(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return ending;
}

fs::path unpacked_name(const fs::path& path) {
  if (has_columnar_name(path)) return fs::path(path).replace_extension(".jsonl");
  const std::string ending = ending_of(path);
  return (ending == ".gz" && unpacks("gzip")) || (ending == ".zst" && unpacks("zstd"))
             ? path.parent_path() / path.stem()
             : path;
}

std::string text_ending_of(const fs::path& path) {
  return ending_of(unpacked_name(path));
}

TextFormat guess_text_format(const fs::path& path) {
  const std::string extension = text_ending_of(path);
  if (extension == ".tsv") return TextFormat::tsv;
  if (extension == ".csv") return TextFormat::csv;
  if (extension == ".jsonl" || extension == ".ndjson") return TextFormat::jsonl;
  refuse_foreign_name(unpacked_name(path).string());
  if (extension == ".json")
    throw InputError(
        "text",
        "{}: expected one JSON object per line. If the file has such lines, name it .jsonl; a command with "
        "--format also takes --format jsonl. If it is a JSON "
        "array, convert it with pandas: to_json(orient=\"records\", lines=True)",
        path.string());
  return TextFormat::text;
}

namespace {

constexpr std::array<std::string_view, 3> kQuotesNames = {"auto", "csv", "none"};

}  // namespace

Quotes quotes_from_name(std::string_view name) {
  const auto found = std::find(kQuotesNames.begin(), kQuotesNames.end(), name);
  if (found != kQuotesNames.end()) return static_cast<Quotes>(found - kQuotesNames.begin());
  throw InputError("text", "expected quotes to be one of {}, found \"{}\"", fmt::join(kQuotesNames, ", "),
                   name);
}

std::string_view quotes_name(Quotes quotes) {
  return kQuotesNames[static_cast<size_t>(quotes)];
}

std::string join_columns(std::span<const std::string_view> columns) {
  std::string text;
  for (const std::string_view column : columns) {
    if (!text.empty() && !column.empty()) text += ' ';
    text += column;
  }
  return text;
}

Column column_from_text(std::string_view text) {
  const bool digits = text.find_first_not_of("0123456789") == text.npos;
  if (text.empty() || !digits) return std::string(text);
  const auto number = read_whole_number<size_t>(text);
  if (!number || *number == 0 || *number > 1'000'000)
    throw InputError("text", "column numbers count from 1, found {}", text);
  return *number - 1;
}

}  // namespace funicular::format
