#include "funicular/base/random.h"

#include "funicular/base/error.h"

#include <cmath>

namespace funicular {

namespace {

// The finaliser of MurmurHash3 (Appleby) as in SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection on
// 64 bits.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

RandomKey make_key(uint64_t seed, Purpose purpose, uint32_t layer) {
  const uint64_t use = (uint64_t{static_cast<uint32_t>(purpose)} << 32) | layer;
  const uint64_t bits = mix(mix(seed + 0x9E3779B97F4A7C15u) + use);
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

Permutation::Permutation(uint64_t size, RandomKey key) : size_(size), key_(key), half_bits_(1) {
  if (size == 0)
    throw InputError("random", "a permutation needs at least one element; expected size >= 1, found 0");
  while (half_bits_ < 32 && (uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
  // Six rounds on halves of a few bits are measurably uneven (and walking into a smaller range magnifies it).
  rounds_ = half_bits_ < 8 ? 16 : 6;
}

uint64_t Permutation::operator()(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = index >> half_bits_, right = index & mask;
    for (uint32_t round = 0; round < rounds_; ++round) {
      const RandomBlock f = philox(key_, make_counter(round, 0, right));
      const uint64_t next = left ^ (f[0] & mask);
      left = right;
      right = next;
    }
    index = (left << half_bits_) | right;
  } while (index >= size_);
  return index;
}

DropoutRate DropoutRate::from_probability(double p) {
  if (!(p >= 0.0 && p < 1.0)) throw InputError("dropout", "expected a probability in [0, 1), found {}", p);
  const double threshold = std::floor(p * 65536.0 + 0.5);
  return {static_cast<uint32_t>(threshold < 65535.0 ? threshold : 65535.0)};
}

}  // namespace funicular
