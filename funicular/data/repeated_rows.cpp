#include "funicular/data/repeated_rows.h"

#include <algorithm>
#include <cstring>

#include "funicular/base/hash.h"

namespace funicular::data {

namespace {

/// 0: the row has no tokens, or an unknown one.
uint64_t hash_of_text(const Sample& sample, int32_t unknown, std::vector<int32_t>& tokens) {
  tokens.clear();
  size_t count = 0;
  for (const Sample::Column& column : sample.columns) {
    tokens.push_back(static_cast<int32_t>(column.tokens.size()));
    for (size_t i = 0; i < column.tokens.size(); ++i) {
      tokens.push_back(column.tokens[i]);
      if (tokens.back() == unknown) return 0;
    }
    count += column.tokens.size();
  }
  if (count == 0) return 0;
  return std::max<uint64_t>(hash_bytes(tokens.data(), tokens.size() * sizeof(int32_t)), 1);
}

uint64_t hash_of_label(const Sample& sample, LabelKind kind) {
  if (kind == LabelKind::none) return 0;
  if (has_label_lists(kind))
    return hash_bytes(sample.label_set.data(), sample.label_set.size() * sizeof(int32_t));
  if (has_shares(kind)) return hash_bytes(sample.shares.data(), sample.shares.size() * sizeof(double));
  uint64_t bits = 0;
  std::memcpy(&bits, &sample.label, sizeof bits);
  return bits;
}

}  // namespace

TextIndex::TextIndex(const TokenStore& store, int32_t unknown, size_t most) : rows_(store.rows()) {
  std::string classes = std::to_string(static_cast<int>(store.meta().labels));
  for (const std::string& name : store.meta().label_names) classes += '\n' + name;
  classes_ = hash_bytes(classes);
  std::vector<int32_t> tokens;
  for (int64_t row = 0; row < rows_; ++row) {
    const Sample sample = store.row(row);
    const uint64_t text = hash_of_text(sample, unknown, tokens);
    if (text == 0 || (text & mask_) != 0) continue;
    kept_.emplace_back(text, hash_of_label(sample, store.meta().labels));
    while (kept_.size() > most && mask_ != UINT64_MAX) thin(mask_ * 2 + 1);
  }
  std::sort(kept_.begin(), kept_.end());
}

void TextIndex::thin(uint64_t mask) {
  mask_ = mask;
  std::erase_if(kept_, [&](const Row& row) { return (row.first & mask) != 0; });
}

Repeats TextIndex::within() const {
  Repeats found{.rows = rows_, .is_estimate = mask_ != 0};
  const auto scale = static_cast<int64_t>(mask_ + 1);
  for (size_t begin = 0, end; begin < kept_.size(); begin = end) {
    size_t most = 0, of_label = 0;
    for (end = begin; end < kept_.size() && kept_[end].first == kept_[begin].first; ++end) {
      of_label = end > begin && kept_[end] == kept_[end - 1] ? of_label + 1 : 1;
      most = std::max(most, of_label);
    }
    found.repeated += scale * static_cast<int64_t>(end - begin - 1);
    found.other_label += scale * static_cast<int64_t>(end - begin - most);
  }
  return found;
}

Repeats TextIndex::shared_with(const TextIndex& other) const {
  const uint64_t mask = mask_ | other.mask_;
  Repeats found{.rows = rows_, .is_estimate = mask != 0};
  const auto scale = static_cast<int64_t>(mask + 1);
  for (const Row& row : kept_) {
    if ((row.first & mask) != 0) continue;
    const auto first = std::lower_bound(other.kept_.begin(), other.kept_.end(), Row{row.first, 0});
    if (first == other.kept_.end() || first->first != row.first) continue;
    found.repeated += scale;
    if (classes_ == other.classes_ && !std::binary_search(first, other.kept_.end(), row))
      found.other_label += scale;
  }
  return found;
}

}  // namespace funicular::data
