// The generator against its authors' vectors, and what is built on it against mathematics.

#include "funicular/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "funicular/base/error.h"

namespace funicular {
namespace {

TEST(Philox, KnownAnswersOfItsAuthors) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes}, {kOnes, kOnes, kOnes, kOnes}),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomKey, DistinctUsesHaveDistinctKeys) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  size_t count = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{42}, ~uint64_t{0}})
    for (const uint32_t purpose : {1, 2, 3, 4, 5, 1000})
      for (uint32_t layer = 0; layer < 100; ++layer, ++count) {
        const RandomKey key = make_key(seed, static_cast<Purpose>(purpose), layer);
        keys.emplace(key.low, key.high);
      }
  EXPECT_EQ(keys.size(), count);
}

TEST(Uniform, StaysBelowItsBounds) {
  EXPECT_EQ(uniform({0, 0, 0, 0}), 0.0);
  EXPECT_EQ(uniform({~0u, ~0u, 0, 0}), 1.0 - 0x1p-53);
  EXPECT_EQ(uniform_below(~uint64_t{0}, 7), 6u);
  EXPECT_EQ(uniform_below(~uint64_t{0}, ~uint64_t{0}), ~uint64_t{0} - 1);
  EXPECT_EQ(uniform_below(0, 1), 0u);
}

TEST(Permutation, IsABijectionForEverySize) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = 1; size <= 130; ++size) sizes.push_back(size);
  for (const uint64_t size : {255, 256, 257, 1023, 1024, 1025, 4097, 65536, 100'003}) sizes.push_back(size);
  for (const uint64_t size : sizes) {
    const Permutation permutation(size, make_key(size, Purpose::shuffle));
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t value = permutation(i);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]) << "size " << size << ", value " << value;
      seen[value] = true;
    }
  }
}

TEST(Permutation, VeryLargeSizesStayInside) {
  for (const uint64_t size : {uint64_t{1} << 40, (uint64_t{1} << 62) + 1, ~uint64_t{0}}) {
    const Permutation permutation(size, make_key(1, Purpose::shuffle));
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) seen.insert(permutation(i));
    EXPECT_EQ(seen.size(), 1000u);
    EXPECT_LT(*seen.rbegin(), size);
  }
  EXPECT_THROW(Permutation(0, {}), InputError);
}

/// Pearson's statistic of counts against equal expectations.
double chi_square(const std::vector<double>& counts, double expected) {
  double sum = 0;
  for (const double count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(Permutation, EveryElementGoesToEveryPlaceEquallyOften) {
  for (const uint64_t size : {5, 16, 37}) {
    constexpr int kKeys = 20'000;
    std::vector<double> counts(size * size);
    for (int seed = 0; seed < kKeys; ++seed) {
      const Permutation permutation(size, make_key(static_cast<uint64_t>(seed), Purpose::shuffle));
      for (uint64_t i = 0; i < size; ++i) ++counts[i * size + permutation(i)];
    }
    // A doubly stochastic table has (size-1)^2 degrees of freedom; six standard deviations are far beyond
    // chance.
    const double freedom = static_cast<double>((size - 1) * (size - 1));
    const double statistic = chi_square(counts, static_cast<double>(kKeys) / static_cast<double>(size));
    EXPECT_LT(std::abs(statistic - freedom), 6 * std::sqrt(2 * freedom)) << "size " << size;
  }
}

TEST(Dropout, TheThresholdIsTheNearestAndTheMeanExact) {
  EXPECT_EQ(DropoutRate::from_probability(0).threshold, 0u);
  EXPECT_EQ(DropoutRate::from_probability(0).scale(), 1.0);
  EXPECT_EQ(DropoutRate::from_probability(0.5).threshold, 32768u);
  EXPECT_EQ(DropoutRate::from_probability(0.1).threshold, 6554u);
  EXPECT_EQ(DropoutRate::from_probability(0.9999999).threshold, 65535u);
  for (const double p : {1.0, -0.1, std::nan("")}) EXPECT_THROW(DropoutRate::from_probability(p), InputError);
  for (const double p : {0.1, 0.25, 0.5, 0.9}) {
    const DropoutRate rate = DropoutRate::from_probability(p);
    // The share of 16-bit values that are kept, times the scale.
    EXPECT_DOUBLE_EQ((65536.0 - rate.threshold) / 65536.0 * rate.scale(), 1.0);
  }
}

TEST(Dropout, DropsTheShareThatWasAskedForInEveryChannelAndPosition) {
  const DropoutRate rate = DropoutRate::from_probability(0.1);
  const RandomKey key = make_key(3, Purpose::dropout_output, 1);
  constexpr uint32_t kChannels = 256, kPositions = 32, kDraws = 400;
  std::vector<double> channels(kChannels), positions(kPositions);
  double total = 0;
  for (uint64_t draw = 0; draw < kDraws; ++draw)
    for (uint32_t position = 0; position < kPositions; ++position)
      for (uint32_t channel = 0; channel < kChannels; ++channel) {
        if (dropout_keeps(key, draw, position, channel, rate)) continue;
        ++channels[channel], ++positions[position], ++total;
      }
  const double p = rate.threshold / 65536.0, all = double{kChannels} * kPositions * kDraws;
  EXPECT_LT(std::abs(total - all * p), 6 * std::sqrt(all * p * (1 - p)));
  // Binomial counts: Pearson's statistic is (1-p) times a chi-square.
  EXPECT_LT(chi_square(channels, all * p / kChannels) / (1 - p), kChannels + 6 * std::sqrt(2.0 * kChannels));
  EXPECT_LT(chi_square(positions, all * p / kPositions) / (1 - p),
            kPositions + 6 * std::sqrt(2.0 * kPositions));
}

TEST(Dropout, ChannelsUseTheBitsOfTheDocumentedLayout) {
  const RandomKey key = make_key(9, Purpose::dropout_output);
  const DropoutRate rate{30'000};
  for (const uint32_t channel : {0u, 15u, 16u, 31u, 32u, 127u, 128u, 300u}) {
    const uint32_t b = channel / 128, w = channel % 128 / 32, h = channel / 16 % 2, i = channel % 16;
    const uint32_t word = philox(key, {16 * b + i, 5, 77, 1})[w];
    EXPECT_EQ(dropout_keeps(key, (uint64_t{1} << 32) + 77, 5, channel, rate),
              ((h ? word >> 16 : word & 0xFFFF) >= rate.threshold));
  }
}

TEST(Dropout, OfAttentionDropsItsShareAndTellsHeadsQueriesKeysAndDrawsApart) {
  const DropoutRate rate = DropoutRate::from_probability(0.25);
  const RandomKey key = make_key(3, Purpose::dropout_attention, 1);
  constexpr uint64_t kDraw = (uint64_t{1} << 32) + 5;
  constexpr uint32_t kQueries = 64, kKeys = 64;
  using Pattern = std::vector<bool>;
  const auto pattern = [&](uint64_t draw, uint32_t head) {
    Pattern kept;
    for (uint32_t q = 0; q < kQueries; ++q)
      for (uint32_t k = 0; k < kKeys; ++k)
        kept.push_back(attention_dropout_keeps(key, draw, head, q, k, rate));
    return kept;
  };
  const Pattern first = pattern(kDraw, 0);
  for (const Pattern& other : {pattern(kDraw, 1), pattern(5, 0)}) {
    double same = 0;  // of independent ones: 0.75^2 + 0.25^2
    for (size_t i = 0; i < first.size(); ++i) same += first[i] == other[i];
    EXPECT_NEAR(same / static_cast<double>(first.size()), 0.625, 0.05);
  }
  EXPECT_NEAR(std::count(first.begin(), first.end(), true) / static_cast<double>(first.size()), 0.75, 0.04);
  std::set<Pattern> rows, columns;
  for (uint32_t q = 0; q < kQueries; ++q)
    rows.insert(Pattern(first.begin() + q * kKeys, first.begin() + (q + 1) * kKeys));
  for (uint32_t k = 0; k < kKeys; ++k) {
    Pattern column;
    for (uint32_t q = 0; q < kQueries; ++q) column.push_back(first[q * kKeys + k]);
    columns.insert(column);
  }
  EXPECT_EQ(rows.size(), kQueries);
  EXPECT_EQ(columns.size(), kKeys);
}

TEST(Dropout, OfAttentionUsesTheBitsOfTheDocumentedLayout) {
  const RandomKey key = make_key(9, Purpose::dropout_attention);
  const DropoutRate rate{30'000};
  for (const uint32_t query : {0u, 1u, 6u, 7u, 8u, 77u})
    for (const uint32_t attended : {0u, 15u, 16u, 300u}) {
      const uint32_t word = philox(key, {3 * 1'048'576 + attended, query / 8, 77, 1})[query % 8 / 2];
      EXPECT_EQ(attention_dropout_keeps(key, (uint64_t{1} << 32) + 77, 3, query, attended, rate),
                ((query % 2 ? word >> 16 : word & 0xFFFF) >= rate.threshold));
    }
}

}  // namespace
}  // namespace funicular
