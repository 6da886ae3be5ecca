#pragma once
// Words of at most 15 bytes as a pair of integers, so that they are compared and hashed in a few
// instructions.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace funicular::text {

struct WordKey {
  static constexpr size_t longest = 15;
  /// How many bytes from the first one of a word at() reads.
  static constexpr size_t readable = 16;
  uint64_t low = 0,
           high = 0;  ///< the bytes in memory order, zeros behind them; the last byte is their number

  WordKey() = default;
  /// At most 15 bytes.
  explicit WordKey(std::string_view word) {
    char bytes[readable] = {};
    std::memcpy(bytes, word.data(), word.size());
    bytes[longest] = static_cast<char>(word.size());
    std::memcpy(&low, bytes, 8);
    std::memcpy(&high, bytes + 8, 8);
  }
  /// The first `size` (at most 15) of 16 readable bytes.
  static WordKey at(const char* text, size_t size) {
    WordKey key;
#if defined(__SSE2__)
    alignas(32) static constexpr uint8_t kept[2 * readable] = {255, 255, 255, 255, 255, 255, 255, 255,
                                                               255, 255, 255, 255, 255, 255, 255, 255};
    const auto load = [](const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); };
    const __m128i bytes = _mm_and_si128(load(text), load(kept + readable - size));
    key.low = static_cast<uint64_t>(_mm_cvtsi128_si64(bytes));
    key.high = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(bytes, bytes)));
#else
    key = WordKey(std::string_view(text, size));
    key.high &= ~(uint64_t{255} << kSizeShift);
#endif
    key.high |= uint64_t{size} << kSizeShift;
    return key;
  }
  bool operator==(const WordKey&) const = default;
  size_t size() const {
    return high >> kSizeShift;
  }

  /// A word of ASCII with its letters in lower case.
  WordKey lower() const {
    WordKey key;
    key.low = lower(low);
    key.high = lower(high);
    return key;
  }

  /// One 64 x 64 multiplication, both halves folded (as wyhash does).
  uint64_t hash() const {
    const auto product =
        static_cast<unsigned __int128>(low ^ 0xa0761d6478bd642full) * (high ^ 0xe7037ed1a0b428dbull);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

 private:
  static constexpr int kSizeShift = 56;
  // Bytes below 0x80. Adding carries into the top bit of a byte from a bound on.
  static uint64_t lower(uint64_t bytes) {
    constexpr uint64_t ones = 0x0101010101010101ull;
    const uint64_t upper = (bytes + (0x80 - 'A') * ones) & ~(bytes + (0x80 - 'Z' - 1) * ones);
    return bytes | (upper & (0x80 * ones)) >> 2;
  }
};

}  // namespace funicular::text
