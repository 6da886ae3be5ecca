#pragma once
// Collects tokens in a small buffer and moves them to the result in blocks: pushing one at a time would be slow.

#include <cstdint>
#include <cstring>

#include "funicular/text/tokenizer.h"

namespace funicular::text {

class TokenBuffer {
 public:
  explicit TokenBuffer(TokenizedText& out) : out_(out) {}
  ~TokenBuffer() = default;
  void put(int32_t id, bool starts_word) {
    if (count_ == block) flush();
    ids_[count_] = id;
    starts_[count_++] = starts_word;
  }
  /// Makes room for `words` calls of put_word(), at most 64.
  void reserve(int words) {
    if (count_ + (words + 1) * 3 > block) flush();
  }
  /// Puts a word of 0 to 3 tokens without looking for room; ids behind the last token are negative.
  void put_word(const int32_t (&ids)[3]) {
    constexpr uint8_t first[3] = {1, 0, 0};
    std::memcpy(ids_ + count_, ids, sizeof ids);
    std::memcpy(starts_ + count_, first, sizeof first);
    count_ += 3 - (ids[0] < 0) - (ids[1] < 0) - (ids[2] < 0);
  }
  /// To be called at the end.
  void flush() {
    out_.ids.insert(out_.ids.end(), ids_, ids_ + count_);
    out_.word_starts.insert(out_.word_starts.end(), starts_, starts_ + count_);
    count_ = 0;
  }

 private:
  static constexpr int block = 512;
  TokenizedText& out_;
  int count_ = 0;
  int32_t ids_[block];
  uint8_t starts_[block];
};

}  // namespace funicular::text
