// Claims about batches that grow: against a sum that is taken batch by batch.
#include "funicular/data/batch_sizes.h"

#include <gtest/gtest.h>

#include <map>

#include "funicular/base/error.h"

namespace funicular::data {
namespace {

TEST(BatchSizes, EachSizeHasEquallyManyBatchesUpToOne) {
  for (const int64_t warmup : {12, 14, 60, 61}) {
    const BatchSizes sizes{.full = 9, .first = 3, .warmup = warmup};
    std::map<int64_t, int64_t> batches;
    for (int64_t batch = 0; batch < warmup; ++batch) {
      ++batches[sizes.of(batch)];
      EXPECT_LE(sizes.of(batch), sizes.of(batch + 1));
    }
    ASSERT_EQ(batches.size(), 6u) << "3 to 8";
    EXPECT_EQ(batches.begin()->first, 3);
    for (const auto& [size, count] : batches)
      EXPECT_LE(std::abs(count - warmup / 6), warmup % 6 != 0) << size << " of " << warmup;
    EXPECT_EQ(sizes.of(warmup), 9);
    EXPECT_EQ(sizes.of(warmup + 1000), 9);
  }
}

TEST(BatchSizes, AFewStepsLeaveSizesOut) {
  const BatchSizes sizes{.full = 100, .first = 20, .warmup = 4};
  EXPECT_EQ(sizes.of(0), 20);
  EXPECT_EQ(sizes.of(1), 40);
  EXPECT_EQ(sizes.of(3), 80);
  EXPECT_EQ(sizes.of(4), 100);
}

TEST(BatchSizes, WhatComesBeforeABatchIsTheSumOfTheSizes) {
  for (const BatchSizes& sizes :
       {BatchSizes{.full = 7}, BatchSizes{.full = 7, .first = 7, .warmup = 5},
        BatchSizes{.full = 50, .first = 1, .warmup = 7}, BatchSizes{.full = 13, .first = 2, .warmup = 200},
        BatchSizes{.full = 4608, .first = 64, .warmup = 997}}) {
    int64_t sum = 0;
    for (int64_t batch = 0; batch < 1200; sum += sizes.of(batch++))
      ASSERT_EQ(sizes.before(batch), sum) << sizes.full << ", batch " << batch;
  }
}

TEST(BatchSizes, TheLargestNumbersDoNotOverflow) {
  const int64_t most = BatchSizes::kMost;
  const BatchSizes sizes{.full = most, .first = 1, .warmup = most - 1};
  sizes.check();
  EXPECT_EQ(sizes.of(most - 2), most - 1);  // one batch of each size
  EXPECT_EQ(sizes.before(most - 1), most / 2 * (most - 1));
}

TEST(BatchSizes, RefuseWhatDoesNotGrow) {
  EXPECT_THROW((BatchSizes{.full = 4, .first = 5, .warmup = 2}.check()), InputError);
  EXPECT_THROW((BatchSizes{.full = 4, .first = 0, .warmup = 2}.check()), InputError);
  EXPECT_THROW((BatchSizes{.full = 4, .first = 1, .warmup = -1}.check()), InputError);
  EXPECT_THROW((BatchSizes{.full = BatchSizes::kMost + 1, .first = 1, .warmup = 2}.check()), InputError);
  EXPECT_NO_THROW((BatchSizes{.full = 4, .first = 9}.check())) << "nothing grows";
}

}  // namespace
}  // namespace funicular::data
