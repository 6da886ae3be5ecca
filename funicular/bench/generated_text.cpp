#include "funicular/bench/generated_text.h"

#include <utility>

#include "funicular/base/hash.h"

namespace funicular::bench {

GeneratedText::GeneratedText(const RowsRule& rule, int64_t batches) {
  for (int64_t b = 0; b < batches; ++b) add(make_rows(rule, static_cast<uint64_t>(b)));
}

GeneratedText::GeneratedText(const std::vector<Rows>& batches) {
  for (const Rows& rows : batches) add(rows);
}

void GeneratedText::add(const Rows& rows) {
  for (const Row& row : rows) {
    std::vector<int64_t> tokens = row.token_ids;
    for (size_t m = 0; m < row.labels.size(); ++m)
      tokens[static_cast<size_t>(row.masked_positions[m])] = row.labels[m];
    for (size_t i = 1; i + 1 < tokens.size(); ++i) tokens_.push_back(static_cast<uint32_t>(tokens[i]));
    bounds_.push_back(tokens_.size());
  }
}

data::Sample GeneratedText::get(int64_t index) const {
  const size_t begin = bounds_.at(static_cast<size_t>(index)),
               end = bounds_.at(static_cast<size_t>(index) + 1);
  data::Sample sample;
  sample.columns = {{data::TokenSpan(tokens_.data() + begin, end - begin), data::WordStarts{}}};
  sample.sample_id = index;
  return sample;
}

uint64_t GeneratedText::fingerprint() const {
  return hash_bytes(
      std::string_view(reinterpret_cast<const char*>(tokens_.data()), tokens_.size() * sizeof(tokens_[0])));
}

text::WordPiece generated_tokenizer(int64_t vocabulary) {
  std::vector<std::string> tokens;
  for (int64_t i = 0; i < vocabulary; ++i) tokens.push_back("token" + std::to_string(i));
  const TokenIds ids = TokenIds::of(vocabulary);
  text::WordPieceOptions options;
  const auto name = [&](int64_t id, const std::string& text) { tokens.at(static_cast<size_t>(id)) = text; };
  name(0, options.pad_token);
  name(ids.unknown, options.unknown_token);
  name(ids.cls, options.cls_token);
  name(ids.sep, options.sep_token);
  name(ids.mask, options.mask_token);
  return {std::move(tokens), std::move(options), {}};
}

}  // namespace funicular::bench
