#pragma once
// The tokens of the latest pieces of text between blanks that one thread met.

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "funicular/text/tokenizer.h"

namespace funicular::text {

/// Two places for each hash: a new text takes the first one, and the text there the second one.
class ChunkCache {
 public:
  static constexpr size_t longest = 40;
  static constexpr size_t most_tokens = 12;
  struct Slot {
    uint32_t owner = 0;  ///< the tokeniser; 0 for none
    uint8_t size = 0, count = 0;
    uint16_t starts = 0;  ///< a bit for each token: whether it begins a word
    char text[longest];
    int32_t ids[most_tokens];

    bool holds(std::string_view chunk, uint32_t who) const {
      return owner == who && size == chunk.size() && std::memcmp(text, chunk.data(), size) == 0;
    }
    /// Does nothing where there are too many tokens.
    void fill(std::string_view chunk, uint32_t who, const int32_t* tokens, const uint8_t* begins,
              size_t many) {
      if (many > most_tokens) return;
      owner = who;
      size = static_cast<uint8_t>(chunk.size());
      count = static_cast<uint8_t>(many);
      std::memcpy(text, chunk.data(), chunk.size());
      starts = 0;
      for (size_t i = 0; i < many; ++i) {
        ids[i] = tokens[i];
        starts = static_cast<uint16_t>(starts | (begins[i] != 0) << i);
      }
    }
  };

  ChunkCache() : slots_(size_t{2} << bits) {}
  /// The slot of a chunk of at most `longest` bytes; `known` says whether it holds the chunk's tokens.
  Slot& slot(std::string_view chunk, uint32_t who, bool& known) {
    Slot* const both = &slots_[hash(chunk) >> (64 - bits) << 1];
    known = true;
    if (both[0].holds(chunk, who)) return both[0];
    if (both[1].holds(chunk, who)) return both[1];
    known = false;
    both[1] = both[0];
    return both[0];
  }

 private:
  static constexpr int bits = 14;
  static uint64_t hash(std::string_view chunk) {
    uint64_t state = chunk.size() * 0x9E3779B97F4A7C15ull;
    const char* at = chunk.data();
    for (size_t left = chunk.size(); left > 0;) {
      const size_t step = left < 8 ? left : 8;
      uint64_t word = 0;
      std::memcpy(&word, at, step);
      state = (state ^ word) * 0xA0761D6478BD642Full;
      state ^= state >> 32;
      at += step;
      left -= step;
    }
    return state * 0xE7037ED1A0B428DBull;
  }
  std::vector<Slot> slots_;
};

}  // namespace funicular::text
