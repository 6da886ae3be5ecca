#pragma once
// Counter-based random numbers. Every random choice is a pure function of a key and a counter, so no layout of the
// computation (micro-batches, ranks, threads) can change it.
//
// Generator: Philox4x32 with 10 rounds. Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1,
// 2, 3", SC 2011. The known-answer vectors of its authors are in tests/base/random_test.cpp.

#include <array>
#include <cstdint>

#include "funicular/base/team.h"

namespace funicular {

/// Purpose of a random number. Values are part of the reproducibility promise: append, never renumber.
enum class Purpose : uint32_t {
  initialise = 1,                ///< weights; the seed is mixed with the hash of the tensor's name
  shuffle = 2,                   ///< order of the samples; layer = epoch
  mask_select = 3,               ///< which tokens are hidden
  mask_replace = 4,              ///< what is shown instead
  dropout_embedding = 5,         ///< after the embeddings' normalisation
  dropout_attention = 6,         ///< on attention probabilities
  dropout_attention_output = 7,  ///< after the attention's output product
  dropout_output = 8,            ///< after the feed-forward part
  dropout_classifier = 9,        ///< in heads
  next_sentence = 10,            ///< which second segment a sequence has, and where it begins
  vary_text = 20,                ///< which words of a text are replaced, and by what (augment/)
  train_vectors = 21,            ///< word vectors: their start and what is drawn (augment/)
  user = 1000,                   ///< first value for users' own modules
};

/// A 64-bit Philox key.
struct RandomKey {
  uint32_t low = 0;   ///< the lower 32 bits
  uint32_t high = 0;  ///< the upper 32 bits
  /// Equal if both halves are.
  bool operator==(const RandomKey&) const = default;
};

/// The key for one purpose in one layer of a run with this seed. For one seed, distinct uses give distinct,
/// unrelated keys.
RandomKey make_key(uint64_t seed, Purpose purpose, uint32_t layer = 0);

/// A counter, or the 128 random bits that belong to it.
using RandomBlock = std::array<uint32_t, 4>;

/// 128 random bits for a counter. A pure function.
FUNICULAR_DEVICE inline RandomBlock philox(RandomKey key, RandomBlock counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key.low, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key.high, static_cast<uint32_t>(a)};
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return counter;
}

/// The counter of item `index` (32 bits), sub-item `position` (32 bits) of draw `draw` (64 bits).
FUNICULAR_DEVICE inline RandomBlock make_counter(uint32_t index, uint32_t position, uint64_t draw) {
  return {index, position, static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32)};
}

/// Uniform in [0, 1) with 53 bits, from the first two words.
inline double uniform(const RandomBlock& block) {
  return static_cast<double>((uint64_t{block[0]} << 21) ^ (block[1] >> 11)) * 0x1p-53;
}

/// Uniform in [0, bound), bound >= 1, by multiplication of 64 bits (bias below bound / 2^64).
inline uint64_t uniform_below(uint64_t bits, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

/// A keyed permutation of [0, size): gives index i of the shuffled order in O(1) memory. It is a Feistel network
/// over the next power of four, walked until it falls inside: Black and Rogaway, "Ciphers with Arbitrary Finite
/// Domains", CT-RSA 2002.
class Permutation {
 public:
  /// size >= 1.
  Permutation(uint64_t size, RandomKey key);
  /// The number at place `index` of the shuffled order, 0 <= index < size().
  uint64_t operator()(uint64_t index) const;
  /// How many numbers are shuffled.
  uint64_t size() const { return size_; }

 private:
  uint64_t size_;
  RandomKey key_;
  uint32_t half_bits_;
  uint32_t rounds_ = 0;
};

/// Dropout decisions. An element (draw, position, channel) is kept iff its 16 random bits are >= threshold, where
/// threshold = round(p * 65536). Kept elements are scaled by 1 / (1 - threshold / 65536), so the mean is exact.
///
/// The layout of the bits lets a vector unit store whole registers. Channels come in blocks of 128. Channel
/// c = 128 * B + 32 * w + 16 * h + i takes half h (0 = low 16 bits) of word w of a Philox block. The block's counter
/// is {16 * B + i, position, draw}.
struct DropoutRate {
  uint32_t threshold = 0;  ///< 0 .. 65535; 0 keeps everything
  /// The nearest rate to a probability of dropping, 0 <= p < 1. Throws InputError for another p.
  static DropoutRate from_probability(double p);
  /// The factor of a kept element.
  double scale() const { return 65536.0 / (65536.0 - threshold); }
};

/// Reference for one element; kernels compute the same for whole blocks.
FUNICULAR_DEVICE inline bool dropout_keeps(RandomKey key, uint64_t draw, uint32_t position, uint32_t channel,
                                           DropoutRate rate) {
  const uint32_t block = channel / 128, word = channel % 128 / 32, half = channel % 32 / 16,
                 lane = channel % 16;
  const uint32_t bits = philox(key, make_counter(16 * block + lane, position, draw))[word];
  return ((bits >> (16 * half)) & 0xFFFFu) >= rate.threshold;
}

/// As dropout_keeps, for the attention probability of a query and a key, both counted within the sequence, below
/// 2^20. Eight queries share a Philox block, so that a short sequence takes few blocks. Query q and key k take 16
/// bits: half q % 2 of word q % 8 / 2. The block's counter is {2^20 * head + k, q / 8, draw}.
FUNICULAR_DEVICE inline bool attention_dropout_keeps(RandomKey key, uint64_t draw, uint32_t head,
                                                     uint32_t query, uint32_t attended, DropoutRate rate) {
  const uint32_t bits = philox(key, make_counter((head << 20) + attended, query / 8, draw))[query % 8 / 2];
  return ((bits >> (16 * (query % 2))) & 0xFFFFu) >= rate.threshold;
}

}  // namespace funicular
