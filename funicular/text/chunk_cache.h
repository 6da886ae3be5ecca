#pragma once
// The tokens of the latest pieces of text between blanks that one thread met.

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "funicular/text/tokenizer.h"

namespace funicular::text {

namespace detail {

template <class Word>
Word load(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

/// 1 to 7 bytes as a number; of texts of one length, different ones have different numbers.
inline uint64_t few_bytes(const char* at, size_t size) {
  if (size >= 4) return load<uint32_t>(at) | uint64_t{load<uint32_t>(at + size - 4)} << 32;
  const auto byte = [&](size_t i) { return uint64_t{static_cast<uint8_t>(at[i])}; };
  return byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
}

/// Whether `size` bytes are equal, size > 0.
inline bool equal_bytes(const char* a, const char* b, size_t size) {
  if (size < 8) return few_bytes(a, size) == few_bytes(b, size);
  for (size_t i = 0; i + 8 < size; i += 8)
    if (load<uint64_t>(a + i) != load<uint64_t>(b + i)) return false;
  return load<uint64_t>(a + size - 8) == load<uint64_t>(b + size - 8);
}

}  // namespace detail

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
      return owner == who && size == chunk.size() && detail::equal_bytes(text, chunk.data(), size);
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
  /// The slot of a chunk of 1 to `longest` bytes; `known` says whether it holds the chunk's tokens.
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
    const auto add = [&](uint64_t word) {
      state = (state ^ word) * 0xA0761D6478BD642Full;
      state ^= state >> 32;
    };
    const char* const at = chunk.data();
    if (chunk.size() < 8) {
      add(detail::few_bytes(at, chunk.size()));
    } else {
      for (size_t i = 0; i + 8 < chunk.size(); i += 8) add(detail::load<uint64_t>(at + i));
      add(detail::load<uint64_t>(at + chunk.size() - 8));
    }
    return state * 0xE7037ED1A0B428DBull;
  }
  std::vector<Slot> slots_;
};

}  // namespace funicular::text
