// Claims about what is advised where a model does not fit.
#include <gtest/gtest.h>

#include "funicular/train/memory_advice.h"

namespace funicular::train {
namespace {

TEST(MemoryAdvice, CountsWhatATrainingHolds) {
  TrainingNeeds needs{.parameters = 1000};
  EXPECT_EQ(bytes_of_training(needs), 16000) << "weights, gradients and two moments of 4 bytes";
  needs.precision = Precision::bf16;
  EXPECT_EQ(bytes_of_training(needs), 18000) << "and a copy in 16 bits";
  needs.precision = Precision::fp64;
  EXPECT_EQ(bytes_of_training(needs), 32000);
  needs.precision = Precision::fp32;
  needs.optimizer = optim::Sgd{};
  EXPECT_EQ(bytes_of_training(needs), 8000);
  needs.optimizer = optim::Sgd{.momentum = 0.9};
  EXPECT_EQ(bytes_of_training(needs), 12000);
}

TEST(MemoryAdvice, NamesThePipelineThatFits) {
  const TrainingNeeds needs{.parameters = 1'000'000'000};  // 16 GB
  EXPECT_EQ(ranks_that_hold(needs, 100e9), 2) << "one process does not hold it, so that it is asked";
  EXPECT_EQ(ranks_that_hold(needs, 12.1e9), 2);
  EXPECT_EQ(ranks_that_hold(needs, 8.1e9), 3);
  const std::string advice = memory_advice(needs, 8.1e9, "no more");
  for (const char* part : {"take 16.00 GB, and", "may have 8.10 GB", "A pipeline of 3 ranks",
                           "about 5.33 GB a rank", "launch -n 3", "--pipeline-parallel 3", "(no more)"})
    EXPECT_NE(advice.find(part), std::string::npos) << part << " in: " << advice;
  // Of two that were not enough.
  const std::string more =
      memory_advice({.parameters = 1'000'000'000, .ranks = 2, .parts = 2}, 12.1e9, "no more");
  EXPECT_NE(more.find("take 8.00 GB on each rank"), std::string::npos) << more;
  EXPECT_NE(more.find("A pipeline of 3 ranks"), std::string::npos) << more;
}

TEST(MemoryAdvice, BlamesBatchesWhereTheModelIsSmall) {
  const std::string advice = memory_advice({.parameters = 1'000'000}, 8e9, "no more");
  EXPECT_EQ(advice.find("pipeline"), std::string::npos) << advice;
  EXPECT_NE(advice.find("--micro-batch-tokens"), std::string::npos) << advice;
}

}  // namespace
}  // namespace funicular::train
