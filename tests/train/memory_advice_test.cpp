// Claims about what is advised where a model does not fit.
#include <gtest/gtest.h>

#include "funicular/core/wrap_module.h"
#include "funicular/parallel/holding/holding.h"
#include "funicular/train/memory_advice.h"
#include "helpers.h"

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
  EXPECT_EQ(ranks_that_hold(needs, 12.1e9), 2) << "8 GB, and 2 of the other rank's weights";
  EXPECT_EQ(ranks_that_hold(needs, 9e9), 3);
  EXPECT_EQ(ranks_that_hold(needs, 8.1e9), 4) << "5.3 and 2.7 GB are too near";
  EXPECT_EQ(ranks_that_hold(needs, 4e9), 6) << "all weights do not fit: so many hold their parts";
  EXPECT_EQ(ranks_that_hold({.parameters = 1'000'000'000, .optimizer = optim::Sgd{}}, 9e9), 2);
  const std::string advice = memory_advice(needs, 8.1e9, "no more");
  for (const char* part :
       {"take 16.00 GB, and", "may have 8.10 GB", "A pipeline of 4 ranks", "about 4.00 GB per rank",
        "up to 4.00 GB more while weights are saved", "launch -n 4", "--pipeline-parallel 4", "(no more)"})
    EXPECT_NE(advice.find(part), std::string::npos) << part << " in: " << advice;
  // Of two that were not enough.
  const std::string more = memory_advice({.parameters = 1'000'000'000, .parts = 2}, 12.1e9, "no more");
  EXPECT_NE(more.find("take 8.00 GB on each rank"), std::string::npos) << more;
  EXPECT_NE(more.find("A pipeline of 3 ranks"), std::string::npos) << more;
}

TEST(MemoryAdvice, CountsOnARankWhatItsLayoutLeavesThere) {
  // Bytes of a weight, a gradient and two moments: 4, 4 and 8.
  const auto bytes = [](int zero, int replicas, int parts) {
    return bytes_of_a_rank({.parameters = 1200, .parts = parts, .replicas = replicas, .zero = zero});
  };
  EXPECT_EQ(bytes(0, 4, 1), 1200 * 16);
  EXPECT_EQ(bytes(1, 4, 1), 1200 * (4 + 4 + 2));
  EXPECT_EQ(bytes(2, 4, 1), 1200 * (4 + 1 + 2));
  EXPECT_EQ(bytes(3, 4, 1), 1200 * 4);
  EXPECT_EQ(bytes(0, 2, 3), 1200 * 16 / 3);
  EXPECT_EQ(bytes(1, 2, 2), 1200 * (4 + 4 + 4) / 2);
}

TEST(MemoryAdvice, CountsTheStatesThatEachOptimizerKeeps) {
  for (const optim::OptimizerSpec& spec :
       {optim::OptimizerSpec(optim::AdamW{}), optim::OptimizerSpec(optim::Adam{}),
        optim::OptimizerSpec(optim::Sgd{}), optim::OptimizerSpec(optim::Sgd{.momentum = 0.9}),
        optim::OptimizerSpec(optim::Lamb{}), optim::OptimizerSpec(optim::Lars{}),
        optim::OptimizerSpec(optim::Lion{}), optim::OptimizerSpec(optim::StableAdamW{})}) {
    Model model = wrap_module(test::make_net(), test::squared_error);
    const parallel::Holding parameters(model);
    const auto optimizer = optim::make_optimizer(spec);
    optimizer->attach(parameters.target());
    const auto states = static_cast<int64_t>(optimizer->state().size());
    EXPECT_EQ(bytes_of_training({.parameters = 1000, .optimizer = spec}), 1000 * 4 * (2 + states))
        << optim::optimizer_name(spec);
  }
}

TEST(MemoryAdvice, AsksForMorePartsThanThereAre) {
  // 16 GB in four parts by ZeRO 3 were too much: a pipeline of three would be, too.
  const std::string advice =
      memory_advice({.parameters = 1'000'000'000, .replicas = 4, .zero = 3}, 11e9, "no more");
  EXPECT_NE(advice.find("take 4.00 GB on each rank"), std::string::npos) << advice;
  EXPECT_NE(advice.find("A pipeline of 5 ranks"), std::string::npos) << advice;
}

TEST(MemoryAdvice, OfAGpuSpeaksOfItsMemory) {
  const TrainingNeeds needs{.parameters = 1'000'000'000};  // 16 GB
  const std::string fits = memory_advice_on_gpu(needs, "NVIDIA L4", 24e9, "no more");
  for (const char* part : {"NVIDIA L4 with 24.00 GB", "take 16.00 GB, and the batch takes the rest",
                           "--micro-batch-tokens", "nvidia-smi", "(no more)"})
    EXPECT_NE(fits.find(part), std::string::npos) << part << " in: " << fits;
  const std::string too_large = memory_advice_on_gpu(needs, "NVIDIA T4", 16e9, "no more");
  EXPECT_NE(too_large.find("take 16.00 GB; divide the model among 2 GPUs"), std::string::npos) << too_large;
  EXPECT_NE(too_large.find("funicular launch -n 2 -- funicular … --pipeline-parallel 2"), std::string::npos)
      << too_large;
  EXPECT_EQ(too_large.find("--micro-batch-tokens"), std::string::npos) << too_large;
}

TEST(MemoryAdvice, BlamesBatchesWhereTheModelIsSmall) {
  const std::string advice = memory_advice({.parameters = 1'000'000}, 8e9, "no more");
  EXPECT_EQ(advice.find("pipeline"), std::string::npos) << advice;
  EXPECT_NE(advice.find("--micro-batch-tokens"), std::string::npos) << advice;
}

}  // namespace
}  // namespace funicular::train
