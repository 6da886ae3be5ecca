#include "funicular/data/sentences.h"

#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"

namespace funicular::data {

SentencesDataset::SentencesDataset(std::shared_ptr<const TokenStore> store, int64_t length, bool across)
    : store_(std::move(store)), length_(static_cast<uint64_t>(length)), across_(across) {
  if (length < 1) throw InputError("data set", "expected samples of at least 1 token, found {}", length);
  uint64_t end = 0, used = 0;  // end of the tokens so far, and of the sample being filled
  const auto begin_sample = [&] {
    if (used > 0) begins_.push_back(end);
    used = 0;
  };
  const auto take = [&](uint64_t tokens, bool new_document) {
    const uint64_t separator = new_document && used > 0 ? 1 : 0;
    if (used + separator + tokens > length_)
      begin_sample();
    else
      used += separator;
    for (; tokens > length_; tokens -= length_) {
      used = length_;
      end += length_;
      begin_sample();
    }
    used += tokens;
    end += tokens;
  };
  begins_.push_back(0);
  for (int64_t document = 0; document < store_->documents(); ++document) {
    const StoreRange tokens = store_->document_tokens(document);
    if (tokens.size() == 0) continue;
    if (!across_) begin_sample();
    bool first = true;
    uint64_t row = tokens.begin;
    for (const uint64_t next : store_->row_starts(document, tokens).tokens) {
      if (next > row) take(next - row, std::exchange(first, false));
      row = next;
    }
    take(tokens.end - row, first);
  }
  if (used > 0) begins_.push_back(end);
}

StoreRange SentencesDataset::range(int64_t index) const {
  if (index < 0 || index >= size())
    throw InputError("data set", "expected a sample from 0 to {}, found {}", size() - 1, index);
  return {begins_[static_cast<size_t>(index)], begins_[static_cast<size_t>(index) + 1]};
}

int64_t SentencesDataset::document_at(uint64_t token) const {
  // The last document that begins at or before the token; empty documents before it begin there, too.
  int64_t low = 0, high = store_->documents();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (store_->document_tokens(middle).begin <= token ? low : high) = middle;
  }
  // Empty documents behind a document begin at its end, so the last document that begins at or before a token has it.
  return low;
}

int64_t SentencesDataset::document_of(int64_t index) const {
  return document_at(range(index).begin);
}

Sample SentencesDataset::get(int64_t index) const {
  const StoreRange tokens = range(index);
  Sample sample;
  sample.columns = {store_->tokens(tokens)};
  sample.sample_id = index;
  const int64_t first = document_at(tokens.begin);
  int64_t last = first;
  for (; across_ && last + 1 < store_->documents(); ++last) {
    const StoreRange other = store_->document_tokens(last + 1);
    if (other.begin >= tokens.end) break;
    if (other.size() > 0) sample.separators.push_back(static_cast<int32_t>(other.begin - tokens.begin));
  }
  sample.columns[0].row_starts = store_->row_starts(first, last, tokens);
  return sample;
}

uint64_t SentencesDataset::fingerprint() const {
  const uint64_t parts[] = {store_->fingerprint(), 4, length_, across_};
  return hash_bytes(parts, sizeof parts);
}

}  // namespace funicular::data
