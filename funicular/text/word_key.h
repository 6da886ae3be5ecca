#pragma once
// Words of at most 16 bytes as a pair of integers, so that they are compared and hashed in a few
// instructions.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace funicular::text {

struct WordKey {
  static constexpr size_t longest = 16;
  uint64_t low = 0, high = 0;  ///< the bytes in memory order, zeros behind them
  uint8_t size = 0;

  WordKey() = default;
  WordKey(uint64_t l, uint64_t h, uint8_t s) : low(l), high(h), size(s) {}
  /// At most 16 bytes.
  explicit WordKey(std::string_view word) : size(static_cast<uint8_t>(word.size())) {
    char bytes[longest] = {};
    std::memcpy(bytes, word.data(), word.size());
    std::memcpy(&low, bytes, 8);
    std::memcpy(&high, bytes + 8, 8);
  }
  bool operator==(const WordKey&) const = default;

  /// One 64 x 64 multiplication, both halves folded (as wyhash does).
  uint64_t hash() const {
    const auto product =
        static_cast<unsigned __int128>(low ^ 0xa0761d6478bd642full) * (high ^ 0xe7037ed1a0b428dbull ^ size);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
};

}  // namespace funicular::text
