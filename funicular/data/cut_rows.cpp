#include "funicular/data/cut_rows.h"

#include <algorithm>

namespace funicular::data {

CutRows count_cut_rows(const TokenStore& store, int64_t room) {
  const auto limit = static_cast<size_t>(std::max<int64_t>(room, 0));
  const bool tagged = store.meta().labels == LabelKind::tags;
  CutRows found;
  if (tagged) found.words = static_cast<int64_t>(store.meta().set_labels);
  if (store.meta().longest_row <= limit) {
    found.rows = store.rows();
    found.tokens = static_cast<int64_t>(store.meta().tokens);
    return found;
  }
  for (int64_t row = 0; row < store.rows(); ++row) {
    const Sample sample = store.row(row);
    size_t tokens = 0;
    for (const Sample::Column& column : sample.columns) tokens += column.tokens.size();
    found.add(static_cast<int64_t>(tokens), static_cast<int64_t>(limit));
    for (size_t i = limit; tagged && i < tokens; ++i)
      found.words_left_out += sample.columns.front().word_starts[i] ? 1 : 0;
  }
  return found;
}

CutRows count_cut_texts(const TokenStore& store, int64_t room) {
  const int64_t limit = std::max<int64_t>(room, 0);
  if (static_cast<int64_t>(store.meta().longest_row) <= limit) return count_cut_rows(store, limit);
  CutRows found;
  for (int64_t row = 0; row < store.rows(); ++row) {
    int64_t left_out = 0;
    for (const Sample::Column& column : store.row(row).columns) {
      const auto tokens = static_cast<int64_t>(column.tokens.size());
      found.tokens += tokens;
      left_out += std::max<int64_t>(tokens - limit, 0);
    }
    ++found.rows;
    found.cut += left_out > 0;
    found.tokens_left_out += left_out;
  }
  return found;
}

}  // namespace funicular::data
