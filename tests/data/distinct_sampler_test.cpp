// Claims about batches in which no text stands twice.
#include "funicular/data/distinct_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace funicular::data {
namespace {

/// Every third row shares its second text with two others.
std::vector<uint64_t> texts_of(int64_t row) {
  return {static_cast<uint64_t>(1000 + row), static_cast<uint64_t>(row % 3 == 0 ? row / 9 : 5000 + row)};
}

TEST(DistinctSampler, NoTextStandsInTwoRowsOfABatch) {
  const DistinctSampler sampler(90, {.seed = 3, .batch_size = 16}, texts_of);
  for (int64_t number = 0; number < 3 * sampler.batches_per_epoch(); ++number) {
    std::multiset<uint64_t> texts;
    for (const Draw& draw : sampler.batch(number))
      for (const uint64_t text : texts_of(draw.sample_id)) texts.insert(text);
    EXPECT_EQ(texts.size(), std::set<uint64_t>(texts.begin(), texts.end()).size()) << number;
  }
}

TEST(DistinctSampler, AnEpochHasEachRowOnceButForThoseThatFitNowhere) {
  const DistinctSampler sampler(90, {.seed = 3, .batch_size = 16}, texts_of);
  ASSERT_EQ(sampler.batches_per_epoch(), 6);
  for (const int64_t epoch : {0, 1}) {
    std::set<int64_t> rows, draws;
    int64_t count = 0;
    for (int64_t i = 0; i < 6; ++i)
      for (const Draw& draw : sampler.batch(6 * epoch + i)) {
        rows.insert(draw.sample_id);
        draws.insert(draw.draw_id);
        EXPECT_EQ(draw.draw_id / 90, epoch);
        ++count;
      }
    EXPECT_EQ(std::ssize(rows), count);
    EXPECT_EQ(std::ssize(draws), count);
    EXPECT_EQ(90 - count, sampler.left_out(epoch));
    EXPECT_LE(90 - count, 3);
  }
}

TEST(DistinctSampler, WithoutRepeatedTextsItIsTheSampler) {
  const Sampler::Options options{.seed = 5, .batch_size = 7};
  const Sampler plain(40, options);
  const DistinctSampler sampler(40, options,
                                [](int64_t row) { return std::vector{static_cast<uint64_t>(row)}; });
  for (int64_t number = 0; number < 12; ++number) {
    const std::vector<Draw> a = plain.batch(number), b = sampler.batch(number);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].sample_id, b[i].sample_id);
      EXPECT_EQ(a[i].draw_id, b[i].draw_id);
    }
  }
}

/// A resumed run asks for a batch that it has not walked to.
TEST(DistinctSampler, ABatchIsAFunctionOfItsNumber) {
  const Sampler::Options options{.seed = 3, .batch_size = 16};
  const DistinctSampler forward(90, options, texts_of), backward(90, options, texts_of);
  std::vector<std::vector<int64_t>> seen;
  for (int64_t number = 0; number < 24; ++number) {
    seen.emplace_back();
    for (const Draw& draw : forward.batch(number)) seen.back().push_back(draw.draw_id);
  }
  for (int64_t number = 23; number >= 0; --number) {
    std::vector<int64_t> again;
    for (const Draw& draw : backward.batch(number)) again.push_back(draw.draw_id);
    EXPECT_EQ(again, seen[static_cast<size_t>(number)]) << number;
  }
}

TEST(DistinctSampler, OneTextInAllRowsLeavesOneRowPerBatch) {
  const DistinctSampler sampler(20, {.seed = 3, .batch_size = 5},
                                [](int64_t) { return std::vector<uint64_t>{1}; });
  for (int64_t number = 0; number < 4; ++number) EXPECT_EQ(sampler.batch(number).size(), 1u);
  EXPECT_EQ(sampler.left_out(0), 16);
}

}  // namespace
}  // namespace funicular::data
