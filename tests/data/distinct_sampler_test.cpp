// Claims about batches in which no text stands twice.
#include "funicular/data/distinct_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <set>
#include <utility>
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

/// The rule as it is told: each batch takes the earliest rows that are left, unless one of their texts is there.
std::vector<std::vector<int64_t>> plainly(int64_t size, Sampler::Options options, int64_t batches,
                                          const std::function<std::vector<uint64_t>(int64_t)>& texts) {
  const auto most = static_cast<size_t>(options.batch_size);
  options.batch_size = size;
  std::vector<Draw> left = Sampler(size, options).batch(0);
  std::vector<std::vector<int64_t>> all;
  for (int64_t number = 0; number < batches; ++number) {
    std::set<uint64_t> seen;
    std::vector<int64_t> batch;
    std::vector<Draw> still;
    for (const Draw& draw : left) {
      const std::vector<uint64_t> own = texts(draw.sample_id);
      if (batch.size() == most ||
          std::ranges::any_of(own, [&](uint64_t text) { return seen.contains(text); })) {
        still.push_back(draw);
        continue;
      }
      seen.insert(own.begin(), own.end());
      batch.push_back(draw.draw_id);
    }
    left = std::move(still);
    all.push_back(std::move(batch));
  }
  return all;
}

TEST(DistinctSampler, BatchesAreThoseOfThePlainRule) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    const auto size = static_cast<int64_t>(1 + random() % 120);
    const uint64_t kinds = 1 + random() % 60;
    const auto texts = static_cast<int>(1 + random() % 3);
    std::vector<std::vector<uint64_t>> rows(static_cast<size_t>(size));
    for (std::vector<uint64_t>& row : rows)
      for (int i = 0; i < texts; ++i) row.push_back(random() % kinds);
    const auto of = [&](int64_t row) { return rows[static_cast<size_t>(row)]; };
    const Sampler::Options options{.seed = random(), .batch_size = static_cast<int64_t>(1 + random() % 12)};
    const DistinctSampler sampler(size, options, of);
    const auto expected = plainly(size, options, sampler.batches_per_epoch(), of);
    for (int64_t number = 0; number < sampler.batches_per_epoch(); ++number) {
      std::vector<int64_t> found;
      for (const Draw& draw : sampler.batch(number)) found.push_back(draw.draw_id);
      ASSERT_EQ(found, expected[static_cast<size_t>(number)]) << round << " " << number;
    }
  }
}

/// Walking all waiting rows for each batch would take minutes.
TEST(DistinctSampler, RowsThatWaitCostNothing) {
  const auto start = std::chrono::steady_clock::now();
  const DistinctSampler sampler(200'000, {.seed = 3, .batch_size = 16},
                                [](int64_t) { return std::vector<uint64_t>{1}; });
  EXPECT_EQ(sampler.left_out(0), 200'000 - sampler.batches_per_epoch());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(DistinctSampler, OneTextInAllRowsLeavesOneRowPerBatch) {
  const DistinctSampler sampler(20, {.seed = 3, .batch_size = 5},
                                [](int64_t) { return std::vector<uint64_t>{1}; });
  for (int64_t number = 0; number < 4; ++number) EXPECT_EQ(sampler.batch(number).size(), 1u);
  EXPECT_EQ(sampler.left_out(0), 16);
}

}  // namespace
}  // namespace funicular::data
