#pragma once
// Samples that an objective gets from a dataset: spans into the memory-mapped store, never copies.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace funicular::data {

/// Token ids of one column, in the width that the store uses.
class TokenSpan {
 public:
  TokenSpan() = default;
  TokenSpan(const uint16_t* data, size_t size) : data16_(data), size_(size) {}
  TokenSpan(const uint32_t* data, size_t size) : data32_(data), size_(size) {}
  size_t size() const { return size_; }
  int32_t operator[](size_t i) const {
    return data16_ ? static_cast<int32_t>(data16_[i]) : static_cast<int32_t>(data32_[i]);
  }
  TokenSpan first(size_t count) const { return subspan(0, count); }
  TokenSpan subspan(size_t begin, size_t count) const {
    TokenSpan part;
    part.data16_ = data16_ ? data16_ + begin : nullptr;
    part.data32_ = data32_ ? data32_ + begin : nullptr;
    part.size_ = count;
    return part;
  }

 private:
  const uint16_t* data16_ = nullptr;
  const uint32_t* data32_ = nullptr;
  size_t size_ = 0;
};

/// The word-start bits of a column: bit i of the store's bit array, from bit `begin` on.
struct WordStarts {
  const uint8_t* bits = nullptr;
  uint64_t begin = 0;
  bool operator[](size_t i) const { return (bits[(begin + i) >> 3] >> ((begin + i) & 7)) & 1; }
};

/// Starts of the store's rows among the tokens of a column.
struct RowStarts {
  std::span<const uint64_t> tokens = {};  ///< of the store, ascending, strictly within the column
  uint64_t begin = 0;                     ///< the column's first token in the store
  /// The row starts within `count` tokens of the column, from token `first` on.
  RowStarts subspan(size_t first, size_t count) const {
    const auto after = std::upper_bound(tokens.begin(), tokens.end(), begin + first);
    return {{after, std::lower_bound(after, tokens.end(), begin + first + count)}, begin + first};
  }
};

/// One training example: columns of tokens without special tokens, and its label.
struct Sample {
  struct Column {
    TokenSpan tokens;
    WordStarts word_starts;
    RowStarts row_starts = {};  ///< if the dataset knows them
  };
  std::vector<Column> columns;          ///< any number; tokenizer templates join one or two
  double label = 0;                     ///< class number or regression target; unused without labels
  std::span<const int32_t> label_set;   ///< class numbers: of a set, ascending, or of each word's tag
  std::span<const double> shares = {};  ///< of each label, NaN if unknown; or a number per text
  double weight = 1;                    ///< weight in training
  int64_t sample_id = 0;                ///< index in the dataset
  int64_t draw_id = 0;  ///< ordinal of this draw in the run; each draw of a sample has its own
  int64_t epoch = 0;    ///< of the draw
  /// Places in columns[0], ascending, before which a separator stands, if documents are packed into a sequence.
  std::vector<int32_t> separators = {};
  Column other;  ///< a piece of another document, if the objective reads one; else empty
};

/// Random access to samples. Implementations are immutable and safe to share between threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// 0 <= index < size(). draw_id is left 0; the sampler sets it.
  virtual Sample get(int64_t index) const = 0;
  /// The document that a sample belongs to. Samples of one document stay together if some documents are held out.
  virtual int64_t document_of(int64_t index) const { return index; }
  /// Hash of the contents and of how they are cut. Checkpoints store it, so that a resumed run sees the same data.
  virtual uint64_t fingerprint() const = 0;
  /// Whether damaged contents have been found so far. Never waits.
  virtual bool found_damaged() const { return false; }
  /// Waits until all contents are verified against their checksums. Call it before you keep any result. Throws
  /// InputError for damaged contents.
  virtual void require_sound() const {}
};

}  // namespace funicular::data
