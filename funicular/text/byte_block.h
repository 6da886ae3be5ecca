#pragma once
// Classes of 64 bytes as masks: a bit for each byte, the first byte's lowest.

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace funicular::text {

class ByteBlock {
 public:
  static constexpr size_t size = 64;

  /// 64 readable bytes.
  explicit ByteBlock(const char* text) { std::memcpy(parts_, text, size); }

  uint64_t equal(char one) const {
    return mask([one](Bytes bytes) { return bytes == one; });
  }
  /// Bytes from `first` to `last`, both ASCII.
  uint64_t within(char first, char last) const {
    return mask([=](Bytes bytes) { return in_range(bytes, first, last); });
  }
  /// ASCII letters.
  uint64_t letters() const {
    return mask([](Bytes bytes) { return in_range(bytes | kCase, 'a', 'z'); });
  }
  uint64_t not_ascii() const {
    return mask([](Bytes bytes) { return bytes; });
  }

 private:
  static constexpr int8_t kCase = 0x20;
  static constexpr size_t kPart = 16, kParts = size / kPart;
  using Bytes [[gnu::vector_size(kPart)]] = int8_t;

  static Bytes in_range(Bytes bytes, char first, char last) {
    return (bytes > static_cast<int8_t>(first - 1)) & (bytes < static_cast<int8_t>(last + 1));
  }
  static uint64_t top_bits(Bytes bytes) {
#if defined(__SSE2__)
    return static_cast<uint32_t>(_mm_movemask_epi8(reinterpret_cast<__m128i>(bytes)));
#else
    uint64_t bits = 0;
    for (size_t i = 0; i < kPart; ++i) bits |= uint64_t{bytes[i] < 0} << i;
    return bits;
#endif
  }
  template <class Test>
  uint64_t mask(Test test) const {
    uint64_t bits = 0;
    for (size_t i = 0; i < kParts; ++i) bits |= top_bits(test(parts_[i])) << (kPart * i);
    return bits;
  }

  Bytes parts_[kParts];
};

/// The lowest `count` bits, 0 <= count <= 64.
constexpr uint64_t low_bits(size_t count) {
  return count < 64 ? (uint64_t{1} << count) - 1 : ~uint64_t{0};
}

}  // namespace funicular::text
