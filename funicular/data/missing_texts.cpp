#include "funicular/data/missing_texts.h"

#include <algorithm>
#include <utility>

namespace funicular::data {

namespace {

bool equal(const TokenSpan& tokens, const std::vector<int32_t>& ids) {
  if (tokens.size() != ids.size()) return false;
  for (size_t i = 0; i < ids.size(); ++i)
    if (tokens[i] != ids[i]) return false;
  return true;
}

}  // namespace

MissingTexts::MissingTexts(const text::Tokenizer& tokenizer) {
  for (const std::string_view value : kMissingValues) {
    std::vector<int32_t> ids = tokenizer.tokenize(value).ids;
    // All texts of unknown words would compare equal.
    const bool known = std::find(ids.begin(), ids.end(), tokenizer.special().unknown) == ids.end();
    if (known && !ids.empty()) values_.push_back(std::move(ids));
  }
}

bool MissingTexts::in(const Sample& row) const {
  return std::any_of(row.columns.begin(), row.columns.end(), [&](const auto& column) {
    return std::any_of(values_.begin(), values_.end(),
                       [&](const auto& ids) { return equal(column.tokens, ids); });
  });
}

}  // namespace funicular::data
