#pragma once
// A word of ASCII letters and digits at the front of 16 bytes, found without a branch a byte.

#include <bit>
#include <cstdint>
#include <cstring>

#include "funicular/text/word_key.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace funicular::text {

namespace detail {

// The top bit of each byte that is an ASCII letter or digit; valid for bytes of any value.
inline uint64_t alphanumeric_bytes(uint64_t bytes) {
  constexpr uint64_t ones = 0x0101010101010101ull;
  const uint64_t seven = bytes & (0x7F * ones), folded = seven | (0x20 * ones);
  const auto at_least = [&](uint64_t x, int low) { return x + (0x80 - low) * ones; };
  const uint64_t letters = at_least(folded, 'a') & ~at_least(folded, 'z' + 1);
  const uint64_t digits = at_least(seven, '0') & ~at_least(seven, '9' + 1);
  return (letters | digits) & ~bytes & (0x80 * ones);
}

// The lowest n bytes, 0 <= n <= 8.
inline uint64_t keep_bytes(uint64_t bytes, int n) {
  return n >= 8 ? bytes : bytes & ((uint64_t{1} << (8 * n)) - 1);
}

}  // namespace detail

/// The letters and digits at the front of 16 readable bytes, upper case folded if `lower`. `size` is 16 also
/// if the word is longer.
inline WordKey ascii_run(const char* text, bool lower) {
  uint64_t low, high;
  std::memcpy(&low, text, 8);
  std::memcpy(&high, text + 8, 8);
#if defined(__SSE2__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text));
  const __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
  const auto within = [](__m128i x, char first, char last) {
    return _mm_and_si128(_mm_cmpgt_epi8(x, _mm_set1_epi8(first - 1)),
                         _mm_cmplt_epi8(x, _mm_set1_epi8(last + 1)));
  };
  const __m128i words = _mm_or_si128(within(folded, 'a', 'z'), within(bytes, '0', '9'));
  const int size = std::countr_one(static_cast<uint32_t>(_mm_movemask_epi8(words)));
#else
  static_assert(std::endian::native == std::endian::little);
  const int first = std::countr_zero(~detail::alphanumeric_bytes(low) & 0x8080808080808080ull) / 8;
  const int second = std::countr_zero(~detail::alphanumeric_bytes(high) & 0x8080808080808080ull) / 8;
  const int size = first < 8 ? first : 8 + second;
#endif
  // Bit 5 is the case of a letter, and is set in every digit.
  const uint64_t fold = lower ? 0x2020202020202020ull : 0;
  return {detail::keep_bytes(low | fold, size), size > 8 ? detail::keep_bytes(high | fold, size - 8) : 0,
          static_cast<uint8_t>(size)};
}

}  // namespace funicular::text
