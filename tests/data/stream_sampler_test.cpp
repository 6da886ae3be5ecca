// Claims about batches of a stream of draws: against a walk that takes one draw after the other.
#include "funicular/data/stream_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "funicular/data/mixture.h"

namespace funicular::data {
namespace {

constexpr int64_t kStreamRows = 23;

int64_t stream_length(int64_t sample) {
  return 3 + 7 * sample % 31;
}

/// The batches as the definition says, one draw after the other.
std::vector<std::vector<Draw>> walked(const BatchSizes& sizes, const StreamSampler::Draws& draws,
                                      const StreamSampler::Length& length, int64_t batches) {
  std::vector<std::vector<Draw>> all;
  for (int64_t next = 0, batch = 0; batch < batches; ++batch) {
    std::vector<Draw> taken;
    for (int64_t size = 0;; ++next) {
      const Draw draw = draws(next, next + 1).front();
      size += length ? length(draw.sample_id) : 1;
      if (size > sizes.of(batch) && !taken.empty()) break;
      taken.push_back(draw);
    }
    all.push_back(std::move(taken));
  }
  return all;
}

void expect_walk(const BatchSizes& sizes, const StreamSampler::Draws& draws,
                 const StreamSampler::Length& length) {
  constexpr int64_t kBatches = 40;
  const auto expected = walked(sizes, draws, length, kBatches);
  const StreamSampler forwards(sizes, draws, length), backwards(sizes, draws, length);
  const auto same = [](const Draw& a, const Draw& b) {
    return a.sample_id == b.sample_id && a.draw_id == b.draw_id;
  };
  for (int64_t i = 0; i < kBatches; ++i) {
    const auto found = forwards.batch(i), again = backwards.batch(kBatches - 1 - i);
    EXPECT_TRUE(std::ranges::equal(found, expected[static_cast<size_t>(i)], same)) << i;
    EXPECT_TRUE(std::ranges::equal(again, expected[static_cast<size_t>(kBatches - 1 - i)], same)) << i;
  }
}

StreamSampler::Draws draws_of_sampler(bool shuffle = true) {
  return [sampler = Sampler(kStreamRows, {.seed = 4, .shuffle = shuffle})](int64_t begin, int64_t end) {
    return sampler.draws(begin, end);
  };
}

TEST(StreamSampler, TakesRowsOrTokensInTheOrderOfTheDraws) {
  const Mixture mixture({{"a", 10, 0.75}, {"b", 13, 0.25}});
  const StreamSampler::Draws mixed = [sampler = MixedSampler(mixture, {.seed = 3})](
                                         int64_t begin, int64_t end) { return sampler.draws(begin, end); };
  for (const BatchSizes& sizes :
       {BatchSizes{.full = 6}, BatchSizes{.full = 100}, BatchSizes{.full = 40, .first = 2, .warmup = 30},
        BatchSizes{.full = 300, .first = 50, .warmup = 5}, BatchSizes{.full = 1}})
    for (const StreamSampler::Draws& draws : {draws_of_sampler(), draws_of_sampler(false), mixed}) {
      expect_walk(sizes, draws, {});
      expect_walk(sizes, draws, stream_length);
    }
}

TEST(StreamSampler, ABatchOfTokensHasNoMoreThanItsLimitUnlessOneRowHas) {
  const StreamSampler sampler({.full = 40}, draws_of_sampler(), stream_length);
  for (int64_t batch = 0; batch < 50; ++batch) {
    const std::vector<Draw> draws = sampler.batch(batch);
    int64_t tokens = 0;
    for (const Draw& draw : draws) tokens += stream_length(draw.sample_id);
    EXPECT_LE(tokens, 40);
    EXPECT_GT(tokens + stream_length(sampler.batch(batch + 1).front().sample_id), 40) << "one more fits";
  }
  const StreamSampler tiny({.full = 1}, draws_of_sampler(), stream_length);
  for (int64_t batch = 0; batch < 50; ++batch) EXPECT_EQ(tiny.batch(batch).size(), 1u);
}

TEST(StreamSampler, EpochsAreDrawnWholeAndBatchesCrossThem) {
  const StreamSampler sampler({.full = 10, .first = 4, .warmup = 3}, draws_of_sampler());
  std::vector<int64_t> drawn;
  for (int64_t batch = 0; batch < 8; ++batch)
    for (const Draw& draw : sampler.batch(batch)) {
      EXPECT_EQ(draw.draw_id, std::ssize(drawn));
      drawn.push_back(draw.sample_id);
    }
  EXPECT_EQ(drawn.size(), 4u + 6 + 8 + 5 * 10);
  for (size_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t> rows(drawn.begin() + static_cast<int64_t>(epoch) * kStreamRows,
                              drawn.begin() + static_cast<int64_t>(epoch + 1) * kStreamRows);
    std::sort(rows.begin(), rows.end());
    for (int64_t row = 0; row < kStreamRows; ++row) EXPECT_EQ(rows[static_cast<size_t>(row)], row);
  }
}

TEST(StreamSampler, CountsTheBatchesOfSoManyDraws) {
  for (const bool tokens : {false, true}) {
    const StreamSampler sampler({.full = 90, .first = 12, .warmup = 9}, draws_of_sampler(),
                                tokens ? StreamSampler::Length(stream_length) : nullptr);
    for (int64_t draws = 0; draws < 2000; draws += 1 + draws / 7) {
      const int64_t batches = sampler.batches_of(draws);
      EXPECT_GE(sampler.before(batches), draws);
      EXPECT_TRUE(batches == 0 || sampler.before(batches - 1) < draws) << draws;
    }
    const int64_t far = 5 * StreamSampler::kExact;
    EXPECT_EQ(sampler.estimates(far), tokens);
    const auto about = static_cast<double>(sampler.about_before(far));
    const auto exact = static_cast<double>(sampler.before(far));
    EXPECT_NEAR(about, exact, tokens ? 0.01 * exact : 0);
    EXPECT_FALSE(sampler.estimates(far)) << "the rows have been counted";
    EXPECT_EQ(static_cast<double>(sampler.about_before(far)), exact);
  }
}

}  // namespace
}  // namespace funicular::data
