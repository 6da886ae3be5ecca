#include "funicular/format/text_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "funicular/base/compressed.h"
#include "funicular/base/error.h"

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

TextFormat guess_text_format(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (extension == ".tsv") return TextFormat::tsv;
  if (extension == ".csv") return TextFormat::csv;
  if (extension == ".jsonl" || extension == ".ndjson") return TextFormat::jsonl;
  refuse_name_of_compressed(path.string());
  for (const char* binary : {".parquet", ".arrow", ".xlsx", ".pdf", ".docx"})
    if (extension == binary)
      throw InputError("text", "{}: {} files are not read; export it as csv or jsonl", path.string(),
                       extension);
  if (extension == ".json")
    throw InputError("text",
                     "{}: expected one JSON object a line; name it .jsonl if that is so, or give the format "
                     "(--format jsonl). Of a table that is a JSON array pandas writes such lines with "
                     "to_json(orient=\"records\", lines=True)",
                     path.string());
  return TextFormat::text;
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
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || end != text.data() + text.size()) return std::string(text);
  if (error != std::errc() || number == 0 || number > 1'000'000)
    throw InputError("text", "column numbers count from 1, found {}", text);
  return number - 1;
}

}  // namespace funicular::format
