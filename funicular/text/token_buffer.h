#pragma once
// Collects tokens in a small buffer and moves them to the result in blocks: pushing one at a time would be slow.

#include <cstdint>

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
