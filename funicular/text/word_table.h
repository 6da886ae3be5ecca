#pragma once
// Short words to token ids: the whole vocabulary (shared, immutable), and the latest words of a thread (a
// cache).

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "funicular/text/word_key.h"

namespace funicular::text {

/// The tokens of at most 16 bytes, by open addressing.
class WordTable {
 public:
  explicit WordTable(std::span<const std::string> tokens) {
    size_t slots = 64;
    while (slots < 2 * tokens.size()) slots *= 2;
    slots_.resize(slots);
    mask_ = slots - 1;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].empty() || tokens[i].size() > WordKey::longest) continue;
      const WordKey key(tokens[i]);
      size_t at = key.hash() & mask_;
      while (slots_[at].size != 0) at = (at + 1) & mask_;
      slots_[at] = {key.low, key.high, static_cast<int32_t>(i), key.size};
    }
  }

  /// -1 if there is no such token.
  int32_t find(const WordKey& key, uint64_t hash) const {
    for (size_t at = hash & mask_; slots_[at].size != 0; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.low == key.low && slot.high == key.high && slot.size == key.size) return slot.id;
    }
    return -1;
  }

 private:
  struct Slot {
    uint64_t low = 0, high = 0;
    int32_t id = -1;
    uint8_t size = 0;
  };
  std::vector<Slot> slots_;
  size_t mask_;
};

/// Tells tokenizers apart in the threads' caches: never 0, each time another one.
inline uint32_t next_tokenizer_serial() {
  static std::atomic<uint32_t> serial{0};
  return ++serial;
}

/// The pieces of words met lately by one thread, of all tokenisers that it uses. Direct-mapped: a new word
/// takes the place of an old one with the same hash.
class WordCache {
 public:
  static constexpr int most_pieces = 6;
  struct Slot {
    uint64_t low = 0, high = 0;
    uint32_t owner = 0;  ///< the tokeniser; 0 for none
    uint8_t size = 0, count = 0;
    int32_t ids[most_pieces] = {};

    bool holds(const WordKey& key, uint32_t who) const {
      return low == key.low && high == key.high && size == key.size && owner == who;
    }
    void fill(const WordKey& key, uint32_t who, std::span<const int32_t> pieces) {
      low = key.low, high = key.high, size = key.size, owner = who;
      count = static_cast<uint8_t>(pieces.size());
      for (size_t i = 0; i < pieces.size(); ++i) ids[i] = pieces[i];
    }
  };

  explicit WordCache(int bits = 12) : slots_(size_t{1} << bits), shift_(64 - bits) {}
  // The table of the vocabulary uses the low bits.
  Slot& slot(uint64_t hash) { return slots_[hash >> shift_]; }

 private:
  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace funicular::text
