#include "funicular/task/missing_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "funicular/base/log.h"
#include "funicular/data/missing_texts.h"

namespace funicular::task {

void warn_of_missing_labels(const std::vector<std::string>& names, const fs::path& file) {
  std::vector<std::string> found;
  for (const std::string& name : names)
    if (const auto end = data::kMissingValues.begin() + data::kMissingLabels;
        std::find(data::kMissingValues.begin(), end, name) != end)
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
  if (store.meta().labels == data::LabelKind::tags) return;  // a text of one word may well be "None"
  const data::MissingTexts missing(tokenizer);
  int64_t rows = 0, first = 0;
  for (int64_t row = 0; row < store.rows(); ++row)
    if (missing.in(store.row(row)) && rows++ == 0) first = row + 1;
  warn_of_missing_texts(rows, store.rows(), fmt::format("row {}", first), file.string());
}

void warn_of_missing_texts(int64_t missing, int64_t rows, const std::string& first, const std::string& name) {
  if (missing > 0)
    log::warning(
        "{}: the text of {} of {} rows is only \"nan\", \"None\", \"null\" or an error of Excel, first in "
        "{}: was the text missing?",
        name, missing, rows, first);
}

}  // namespace funicular::task
