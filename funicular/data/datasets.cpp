#include "funicular/data/datasets.h"

#include "funicular/base/error.h"
#include "funicular/base/hash.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace funicular::data {

namespace {

constexpr int64_t kDocumentsPerEntry = 16;
constexpr int64_t kBitsPerRank = 512;

uint64_t combine(std::initializer_list<uint64_t> parts) {
  return hash_bytes(parts.begin(), parts.size() * sizeof(uint64_t));
}

void require_index(int64_t index, int64_t size) {
  if (index < 0 || index >= size)
    throw InputError("data set", "expected a sample from 0 to {}, found {}", size - 1, index);
}

}  // namespace

RowDataset::RowDataset(std::shared_ptr<const TokenStore> store) : store_(std::move(store)) {}

int64_t RowDataset::document_of(int64_t index) const {
  require_index(index, size());
  // The last document that begins at or before the row: empty documents before it begin there too.
  int64_t low = 0, high = store_->documents();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (store_->document_rows(middle).begin <= static_cast<uint64_t>(index) ? low : high) = middle;
  }
  return low;
}

uint64_t RowDataset::fingerprint() const {
  return combine({store_->fingerprint(), 1});
}

ChunkDataset::ChunkDataset(std::shared_ptr<const TokenStore> store, int64_t length)
    : store_(std::move(store)), length_(length) {
  if (length < 1) throw InputError("data set", "expected pieces of at least 1 token, found {}", length);
  first_pieces_.reserve(static_cast<size_t>(store_->documents() / kDocumentsPerEntry + 1));
  for (int64_t document = 0; document < store_->documents(); ++document) {
    if (document % kDocumentsPerEntry == 0) first_pieces_.push_back(size_);
    size_ += pieces_of(store_->document_tokens(document));
  }
}

int64_t ChunkDataset::pieces_of(StoreRange tokens) const {
  const auto length = static_cast<uint64_t>(length_);
  return static_cast<int64_t>(tokens.size() / length + (tokens.size() % length != 0));
}

ChunkDataset::Place ChunkDataset::locate(int64_t index) const {
  require_index(index, size_);
  // Entries of documents without tokens repeat; the last one at or before the index is the nearest.
  const auto entry = std::upper_bound(first_pieces_.begin(), first_pieces_.end(), index) - 1;
  Place place;
  place.document = (entry - first_pieces_.begin()) * kDocumentsPerEntry;
  place.piece = index - *entry;
  for (;; ++place.document) {
    place.tokens = store_->document_tokens(place.document);
    place.pieces = pieces_of(place.tokens);
    if (place.piece < place.pieces) return place;
    place.piece -= place.pieces;
  }
}

Sample ChunkDataset::get(int64_t index) const {
  const Place place = locate(index);
  const uint64_t each = place.tokens.size() / static_cast<uint64_t>(place.pieces);
  const uint64_t longer =
      place.tokens.size() % static_cast<uint64_t>(place.pieces);  // pieces with one token more
  const auto begin_of = [&](int64_t piece) {
    const auto p = static_cast<uint64_t>(piece);
    return place.tokens.begin + p * each + std::min(p, longer);
  };
  Sample sample;
  const StoreRange tokens{begin_of(place.piece), begin_of(place.piece + 1)};
  sample.columns = {store_->tokens(tokens)};
  sample.columns[0].row_starts = store_->row_starts(place.document, tokens);
  sample.sample_id = index;
  return sample;
}

uint64_t ChunkDataset::fingerprint() const {
  return combine({store_->fingerprint(), 2, static_cast<uint64_t>(length_)});
}

SubsetDataset::SubsetDataset(std::shared_ptr<const Dataset> base, std::vector<uint64_t> marks,
                             uint64_t identity)
    : base_(std::move(base)), marks_(std::move(marks)), identity_(identity) {
  const auto needed = static_cast<size_t>((base_->size() + 63) / 64);
  if (marks_.size() != needed)
    throw InputError("data set", "expected {} elements of marks for {} samples, found {}", needed,
                     base_->size(), marks_.size());
  if (base_->size() % 64 != 0) marks_.back() &= (uint64_t{1} << (base_->size() % 64)) - 1;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (i % (kBitsPerRank / 64) == 0) ranks_.push_back(size_);
    size_ += std::popcount(marks_[i]);
  }
}

int64_t SubsetDataset::base_index(int64_t index) const {
  require_index(index, size_);
  const auto block = std::upper_bound(ranks_.begin(), ranks_.end(), index) - 1;
  int64_t left = index - *block;
  size_t element = static_cast<size_t>(block - ranks_.begin()) * (kBitsPerRank / 64);
  for (; left >= std::popcount(marks_[element]); ++element) left -= std::popcount(marks_[element]);
  uint64_t bits = marks_[element];
  for (; left > 0; --left) bits &= bits - 1;  // drop the lowest mark
  return static_cast<int64_t>(element) * 64 + std::countr_zero(bits);
}

Sample SubsetDataset::get(int64_t index) const {
  Sample sample = base_->get(base_index(index));
  sample.sample_id = index;
  return sample;
}

uint64_t SubsetDataset::fingerprint() const {
  return combine(
      {base_->fingerprint(), 3, identity_, hash_bytes(marks_.data(), marks_.size() * sizeof(uint64_t))});
}

namespace {

uint64_t document_hash(uint64_t seed, int64_t document) {
  return combine({seed, static_cast<uint64_t>(document)});
}

struct Threshold {
  uint64_t limit = 0;  ///< documents whose hash is below it are held out
  bool held_out(uint64_t hash) const { return hash < limit; }
};

// The limit for the fraction, moved if a side would be empty.
Threshold choose_threshold(const Dataset& dataset, double fraction, uint64_t seed) {
  uint64_t smallest = UINT64_MAX, largest = 0;
  int64_t previous = -1;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const int64_t document = dataset.document_of(i);
    if (document == previous) continue;
    previous = document;
    const uint64_t hash = document_hash(seed, document);
    smallest = std::min(smallest, hash);
    largest = std::max(largest, hash);
  }
  if (smallest >= largest)
    throw InputError(
        "data set",
        "expected at least two documents to hold some out for evaluation, found {}; give an evaluation "
        "set, or separate the documents by blank lines",
        dataset.size() > 0 ? 1 : 0);
  const auto wanted = static_cast<uint64_t>(std::ldexp(fraction, 64));
  return {std::clamp(wanted, smallest + 1, largest)};
}

}  // namespace

Split split_dataset(std::shared_ptr<const Dataset> dataset, double fraction, uint64_t seed) {
  if (!(fraction > 0 && fraction < 1))
    throw InputError("data set", "expected a fraction between 0 and 1 to hold out, found {}", fraction);
  const Threshold threshold = choose_threshold(*dataset, fraction, seed);
  std::vector<uint64_t> train(static_cast<size_t>((dataset->size() + 63) / 64)), held_out(train.size());
  for (int64_t i = 0; i < dataset->size(); ++i) {
    const bool out = threshold.held_out(document_hash(seed, dataset->document_of(i)));
    (out ? held_out : train)[static_cast<size_t>(i / 64)] |= uint64_t{1} << (i % 64);
  }
  return {std::make_shared<SubsetDataset>(dataset, std::move(train), 0),
          std::make_shared<SubsetDataset>(dataset, std::move(held_out), 1)};
}

}  // namespace funicular::data
