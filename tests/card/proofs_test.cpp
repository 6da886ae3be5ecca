// Strategies on ranks with GPUs, on stand-ins of cards: they compute what one process does, and touch the memory of a card
// by kernels alone.

#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "../comm/stand_in.h"
#include "../prove/proofs.h"
#include "funicular/base/error.h"
#include "funicular/core/deferred_gradients.h"
#include "funicular/launch/environment.h"
#include "funicular/model/encoder.h"
#include "funicular/nn/functional.h"
#include "funicular/parallel/strategy.h"
#include "funicular/runtime/gpu_cards.h"
#include "stand_in.h"

namespace funicular::card::proofs_tests {
namespace {

using comm::test::is_rank;

/// LibTorch asks once for the number of cards, so all tests of the program have as many.
struct FourCards final : testing::Environment {
  void SetUp() override { ::setenv("FUNICULAR_CARDS", "4", 1); }
};
[[maybe_unused]] const testing::Environment* const kCards =
    testing::AddGlobalTestEnvironment(new FourCards);  // which the library deletes

class OnCards : public prove::test::Proofs {
 protected:
  void SetUp() override { ::setenv("TEST_DEVICE", "cuda", 1); }

  /// A card for each rank, with NCCL; or one card that all share.
  static void use(bool nccl) {
    if (is_rank()) return;
    ::setenv("FUNICULAR_TRANSPORT", nccl ? "nccl" : "staged", 1);
    if (nccl) comm::test::use_stand_in();
  }
  static void run_rank() {
    const bool shares = std::getenv("FUNICULAR_TRANSPORT") == std::string("staged");
    device::use_card(shares ? 0 : launch::read_environment().local_rank);
    prove::test::run_rank();
  }

  void expect_as_single(const std::vector<const char*>& layouts) {
    for (const char* const layout : layouts) {
      const prove::Proof proof = compare(layout, "single");
      EXPECT_TRUE(prove::holds(proof, promise)) << layout << ": " << proof.first;
      EXPECT_LE(promise.bound, 1e-10);
      EXPECT_GT(proof.gradient.relative, 0) << "other sums were compared, not the same run";
    }
  }

  const Card card_;
};

TEST_F(OnCards, OneProcessComputesAsTheProcessorDoes) {
  use(false);
  const prove::Proof proof = compare("single", "reference");
  EXPECT_TRUE(prove::holds(proof, promise)) << proof.first;
}

TEST_F(OnCards, RanksOfOneCardComputeAsOneProcess) {
  use(false);
  if (is_rank()) return run_rank();
  expect_as_single({"ddp -n 2", "zero1 -n 3 --micro-batch-size 2", "zero3 -n 2 --recompute full",
                    "ps-sync -n 3", "pipeline -n 2 --schedule zb-v --micro-batch-size 2", "tensor -n 2"});
}

TEST_F(OnCards, RanksWithACardEachComputeAsOneProcess) {
  use(true);
  if (is_rank()) return run_rank();
  expect_as_single({"zero2 -n 3 --micro-batch-size 2",
                    "pipeline-zero3 -n 4 --pipeline-parallel 2 --schedule zb-h1 --micro-batch-size 2",
                    "zero2 -n 4 --tensor-parallel 2 --sequence-parallel --micro-batch-size 3"});
}

/// Dropout's mask does not depend on how a batch is cut.
TEST_F(OnCards, InSixteenBitsRanksComputeAsOneProcessUpToRounding) {
  use(true);
  if (is_rank()) return run_rank();
  ::setenv("TEST_PRECISION", "bf16", 1);
  for (const char* const layout : {"ddp -n 2", "zero3 -n 2", "pipeline -n 2 --micro-batch-size 2"}) {
    const prove::Proof proof = compare(layout, "single");
    EXPECT_TRUE(prove::holds(proof, promise)) << layout << ": " << proof.first;
    EXPECT_EQ(promise.bound, 0.1);
    EXPECT_GT(proof.gradient.relative, 1e-5) << "not in 16 bits";
  }
  ::unsetenv("TEST_PRECISION");
}

/// LAMB's step of a layer needs norms over the ranks that hold its blocks.
TEST_F(OnCards, ARuleByLayersHasTheNormsOfAllRanks) {
  use(false);
  if (is_rank()) return run_rank();
  ::setenv("TEST_OPTIMIZER", "lamb", 1);
  expect_as_single({"zero1 -n 2"});
  ::unsetenv("TEST_OPTIMIZER");
}

TEST_F(OnCards, OneProcessWithSeveralCardsComputesAsWithOne) {
  auto* const memory = at::getDeviceAllocator(at::kCUDA);
  for (const char* const layout :
       {"dp -n 3 --micro-batch-size 2", "pipeline --devices 2 --micro-batch-size 2"}) {
    memory->resetPeakStats(1);
    expect_as_single({layout});
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    EXPECT_GT(memory->getDeviceStats(1).allocated_bytes[all].peak, 200'000)
        << layout << ": the second card held nothing";
  }
}

/// LibTorch runs a card's part of the backward pass in a thread of its own.
TEST_F(OnCards, BackwardPassesDeferProducts) {
  const at::Tensor x = at::ones({2, 3}, at::kCUDA).set_requires_grad(true),
                   weight = at::ones({4, 3}, at::kCUDA).set_requires_grad(true);
  DeferredGradients deferred;
  nn::linear(x, weight).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_TRUE(deferred.holds(weight));
  EXPECT_FALSE(weight.grad().defined());
}

TEST_F(OnCards, RoundedSumsAreRefused) {
  model::ModelOptions options;
  options.config = prove::test::config_of("bert");
  options.device = at::kCUDA;
  Model model = model::build_model(options);
  const auto strategy = parallel::make_strategy("single", {}, {.reduction = {.type = at::kBFloat16}});
  try {
    strategy->attach(model, optim::make_optimizer(optim::AdamW{}));
    ADD_FAILURE() << "not refused";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("--reduce-precision"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace funicular::card::proofs_tests
