#include "funicular/cli/missing_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "funicular/base/log.h"

namespace funicular::cli {

namespace {

/// Texts that stand for nothing: pandas writes them for a missing value after astype(str), Excel for a failed formula.
/// Excel takes a text that begins with a dash for a formula.
constexpr std::array<std::string_view, 13> kValues = {"nan",    "NaN",     "<NA>",  "NaT",     "#N/A",
                                                      "#NAME?", "#VALUE!", "#REF!", "#DIV/0!", "#NULL!",
                                                      "#NUM!",  "None",    "null"};
constexpr size_t kOfLabels = 11;  ///< the first ones; the others are common names of a class

bool equal(const data::TokenSpan& tokens, const std::vector<int32_t>& ids) {
  if (tokens.size() != ids.size()) return false;
  for (size_t i = 0; i < ids.size(); ++i)
    if (tokens[i] != ids[i]) return false;
  return true;
}

}  // namespace

void warn_of_missing_labels(const std::vector<std::string>& names, const fs::path& file) {
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (std::find(kValues.begin(), kValues.begin() + kOfLabels, name) != kValues.begin() + kOfLabels)
      found.push_back(fmt::format("\"{}\"", name));
  if (!found.empty())
    log::warning(
        "{}: there is a class {}; pandas and Excel write missing values so: if these rows have no label, "
        "leave "
        "the rows out",
        file.string(), fmt::join(found, " and a class "));
}

void warn_of_header_row(const data::TokenStore& store, const std::vector<std::string>& names,
                        const fs::path& file) {
  const auto first = static_cast<size_t>(store.row(0).label);
  std::string name = names.at(first);
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  constexpr std::array<std::string_view, 7> kHeaders{"label",  "labels", "class", "category",
                                                     "target", "tag",    "y"};
  if (std::find(kHeaders.begin(), kHeaders.end(), name) == kHeaders.end()) return;
  for (int64_t row = 1; row < store.rows(); ++row)
    if (static_cast<size_t>(store.row(row).label) == first) return;
  log::warning("{}: the first row alone has the label \"{}\": is it a header? Then leave out --no-header",
               file.string(), names.at(first));
}

void warn_of_missing_texts(const data::TokenStore& store, const text::Tokenizer& tokenizer,
                           const fs::path& file) {
  std::vector<std::vector<int32_t>> values;
  for (const std::string_view value : kValues) {
    std::vector<int32_t> ids = tokenizer.tokenize(value).ids;
    // Any text of unknown words would be equal.
    const bool known = std::find(ids.begin(), ids.end(), tokenizer.special().unknown) == ids.end();
    if (known && !ids.empty()) values.push_back(std::move(ids));
  }
  int64_t rows = 0, first = 0;
  for (int64_t row = 0; row < store.rows(); ++row) {
    const data::Sample sample = store.row(row);
    const bool missing = std::any_of(sample.columns.begin(), sample.columns.end(), [&](const auto& column) {
      return std::any_of(values.begin(), values.end(),
                         [&](const auto& ids) { return equal(column.tokens, ids); });
    });
    if (missing && rows++ == 0) first = row + 1;
  }
  if (rows > 0)
    log::warning(
        "{}: the text of {} of {} rows is only \"nan\", \"None\", \"null\" or an error of Excel, first in "
        "row {}: "
        "was the text missing?",
        file.string(), rows, store.rows(), first);
}

}  // namespace funicular::cli
