#include "funicular/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "funicular/base/error.h"
#include "funicular/base/random.h"

namespace funicular::data {
namespace {

std::vector<int64_t> epoch_order(const Sampler& sampler, int64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t b = 0; b < sampler.batches_per_epoch(); ++b)
    for (const Draw& draw : sampler.batch(epoch * sampler.batches_per_epoch() + b))
      order.push_back(draw.sample_id);
  return order;
}

TEST(Sampler, EachSampleIsSeenOnceAnEpoch) {
  for (int64_t size : {1, 2, 3, 7, 64, 100, 1025})
    for (int64_t batch : {1, 2, 7, 64, 2000})
      for (int64_t epoch : {0, 1, 5}) {
        auto order = epoch_order(Sampler(size, {.seed = 3, .batch_size = batch}), epoch);
        std::sort(order.begin(), order.end());
        std::vector<int64_t> all(static_cast<size_t>(size));
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(order, all) << size << " samples, batches of " << batch << ", epoch " << epoch;
      }
}

TEST(Sampler, TheOrderIsThatOfTheKeyOfTheShuffleAlone) {
  for (const uint32_t epoch : {0u, 3u}) {
    const auto order = epoch_order(Sampler(97, {.seed = 6, .batch_size = 10}), epoch);
    const Permutation expected(97, make_key(6, Purpose::shuffle, epoch));
    for (size_t place = 0; place < order.size(); ++place)
      ASSERT_EQ(order[place], static_cast<int64_t>(expected(place))) << "epoch " << epoch;
  }
}

TEST(Sampler, TheLastBatchIsShorterUnlessItIsDropped) {
  const Sampler keeps(10, {.batch_size = 4});
  EXPECT_EQ(keeps.batches_per_epoch(), 3);
  EXPECT_EQ(keeps.batch(2).size(), 2u);
  EXPECT_EQ(keeps.batch(3).size(), 4u) << "batches never cross epochs";
  EXPECT_EQ(keeps.batch(5).size(), 2u);
  const Sampler drops(10, {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(drops.batches_per_epoch(), 2);
  for (int64_t b = 0; b < 6; ++b) EXPECT_EQ(drops.batch(b).size(), 4u);
  EXPECT_EQ(Sampler(8, {.batch_size = 4}).batches_per_epoch(), 2) << "no empty batch where the sizes divide";
}

TEST(Sampler, TheOrderOfAnEpochDoesNotDependOnTheBatchSize) {
  const auto one = epoch_order(Sampler(1000, {.seed = 9, .batch_size = 1}), 2);
  for (int64_t batch : {2, 3, 32, 999, 1000, 5000})
    EXPECT_EQ(epoch_order(Sampler(1000, {.seed = 9, .batch_size = batch}), 2), one);
}

TEST(Sampler, EpochsAndSeedsDiffer) {
  const Sampler sampler(1000, {.seed = 1, .batch_size = 10});
  const auto first = epoch_order(sampler, 0), second = epoch_order(sampler, 1);
  const auto other = epoch_order(Sampler(1000, {.seed = 2, .batch_size = 10}), 0);
  // Two independent random orders of n agree in one place on average.
  const auto agreements = [](const auto& a, const auto& b) {
    int count = 0;
    for (size_t i = 0; i < a.size(); ++i) count += a[i] == b[i];
    return count;
  };
  EXPECT_LT(agreements(first, second), 10);
  EXPECT_LT(agreements(first, other), 10);
}

TEST(Sampler, EveryPlaceReceivesEverySampleEquallyOften) {
  // Chi-square over 8 samples x 8 places in 4,000 epochs: 64 cells, about 49 degrees of freedom; 99.99 % is
  // below 95.
  std::array<std::array<int, 8>, 8> seen{};
  constexpr int kEpochs = 4000;
  const Sampler sampler(8, {.seed = 5, .batch_size = 8});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto draws = sampler.batch(epoch);
    for (size_t place = 0; place < 8; ++place) ++seen[place][static_cast<size_t>(draws[place].sample_id)];
  }
  double chi = 0;
  for (const auto& row : seen)
    for (int count : row) chi += (count - kEpochs / 8.0) * (count - kEpochs / 8.0) / (kEpochs / 8.0);
  EXPECT_LT(chi, 95);
}

TEST(Sampler, WithoutShufflingTheOrderIsThatOfTheDataSet) {
  const Sampler sampler(5, {.shuffle = false, .batch_size = 2});
  EXPECT_EQ(epoch_order(sampler, 0), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(epoch_order(sampler, 3), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(Sampler, ACursorIsEnoughToResume) {
  const Sampler::Options options{.seed = 4, .batch_size = 3};
  const Sampler whole(10, options);
  std::vector<std::vector<int64_t>> expected;
  for (int64_t b = 0; b < 12; ++b) {
    expected.emplace_back();
    for (const Draw& draw : whole.batch(b)) expected.back().push_back(draw.sample_id);
  }
  for (int64_t cursor = 11; cursor >= 0; --cursor) {  // a new object each time, in any order
    std::vector<int64_t> samples;
    for (const Draw& draw : Sampler(10, options).batch(cursor)) samples.push_back(draw.sample_id);
    EXPECT_EQ(samples, expected[static_cast<size_t>(cursor)]);
  }
}

TEST(Sampler, DrawsAreNumberedThroughTheRunHoweverItIsCut) {
  for (int64_t batch : {1, 3, 4, 10}) {
    const Sampler sampler(10, {.seed = 4, .batch_size = batch});
    int64_t expected = 0;
    for (int64_t b = 0; b < 3 * sampler.batches_per_epoch(); ++b)
      for (const Draw& draw : sampler.batch(b)) EXPECT_EQ(draw.draw_id, expected++);
    EXPECT_EQ(expected, 30);
  }
}

TEST(Sampler, RefusesWhatGivesNoBatch) {
  EXPECT_THROW(Sampler(0, {}), InputError);
  EXPECT_THROW(Sampler(5, {.batch_size = 0}), InputError);
  EXPECT_THROW(Sampler(5, {.batch_size = 6, .drop_last = true}), InputError);
  EXPECT_NO_THROW(Sampler(5, {.batch_size = 6}));
}

}  // namespace
}  // namespace funicular::data
