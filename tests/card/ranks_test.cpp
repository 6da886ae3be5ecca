// Ranks with GPUs, on stand-ins of cards: seconds of waits, threads of backward passes, and the end of the process.

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <vector>

#include "../comm/ranks.h"
#include "../comm/stand_in.h"
#include "../parallel/net.h"
#include "funicular/core/recompute.h"
#include "funicular/horovod/horovod.h"
#include "funicular/launch/environment.h"
#include "funicular/parallel/strategy.h"
#include "funicular/runtime/gpu_cards.h"
#include "funicular/runtime/host_stream.h"
#include "funicular/runtime/wait_times.h"
#include "stand_in.h"

namespace funicular::card::ranks_tests {
namespace {

using comm::test::is_rank;
using comm::test::with_ranks;

constexpr std::chrono::milliseconds kPause{50};

TEST(WaitTimes, AreThoseOfTheCardsStreamAndTheHostGoesOn) {
  const Card card;
  const c10::Device place(c10::kCUDA, 0);
  const c10::StreamGuard computing(c10::impl::VirtualGuardImpl(c10::kCUDA)
                                       .getStreamFromGlobalPool(place));  // the first stream computes at once
  const auto exchanging = device::make_stream(place);
  device::current_stream(place)->record()->wait();
  std::promise<void> arrives;
  static_cast<device::HostStream*>(exchanging->handle())->queue([&] { arrives.get_future().wait(); });
  device::WaitTimes waits;
  waits.count(place, [&] { device::current_stream(place)->wait_for(exchanging->record()); });
  std::this_thread::sleep_for(kPause);
  EXPECT_EQ(waits.seconds(), 0) << "the stream still waits";
  arrives.set_value();
  device::current_stream(place)->record()->wait();
  const double seconds = waits.seconds();
  EXPECT_GT(seconds, 0.5 * std::chrono::duration<double>(kPause).count());
  waits.count(place, [] {});
  waits.count(c10::kCPU, [] { std::this_thread::sleep_for(kPause); });
  device::current_stream(place)->record()->wait();
  EXPECT_GE(waits.seconds(), seconds + std::chrono::duration<double>(kPause).count());
}

/// A card for each rank, with NCCL.
void use_cards() {
  ::setenv("FUNICULAR_TRANSPORT", "nccl", 1);
  comm::test::use_stand_in();
  if (is_rank()) device::use_card(launch::read_environment().local_rank);
}

struct TwiceUsedImpl : torch::nn::Module {
  torch::nn::Linear twice{6, 6}, once{6, 6};
  TwiceUsedImpl() {
    register_module("once", once);
    register_module("twice", twice);  // the last one is reduced first
    to(at::kCUDA, torch::kDouble);
  }
};
TORCH_MODULE(TwiceUsed);

/// Trains on these rows, a bucket a weight. Time for a reduction that begins too early passes before the second run.
at::Tensor train_twice_used(const comm::Group& group, const at::Tensor& rows) {
  torch::manual_seed(1);
  TwiceUsed net;
  bool again = false;
  Model model = wrap_module(net, [&](TwiceUsedImpl& module, const MicroBatch& batch, LossSink& sink) {
    again = false;
    const auto inner = [&](const std::vector<at::Tensor>& in) {
      if (again) std::this_thread::sleep_for(2 * kPause);
      again = true;
      return std::vector<at::Tensor>{torch::tanh(module.once(module.twice(in[0])))};
    };
    const auto hidden = recomputed({batch["x"]}, module.parameters(), inner)[0];
    sink.add("all", module.twice(hidden).square().sum());
  });
  const auto strategy =
      parallel::make_strategy("auto", group, {.device = at::kCUDA, .reduction = {.bucket_bytes = 1}});
  strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
  for (int64_t update = 1; update <= 2; ++update) {
    const auto batch = parallel::test::make_batch(rows);
    strategy->step({&batch, 1}, strategy->global_counts(batch.counts),
                   {.learning_rate = 0.01, .update = update});
  }
  return at::cat({net->twice->weight.detach(), net->once->weight.detach()}).cpu();
}

/// LibTorch runs a card's part of the backward pass in a thread of its own.
TEST(RanksWithCards, AWeightUsedWithinAndWithoutARecomputedPartIsReducedOnce) {
  const Card card;
  use_cards();
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment({.device = device::with_number(at::kCUDA)});
    const at::Tensor rows = torch::linspace(-1, 1, 24, torch::kDouble).view({4, 6});
    const at::Tensor ours = train_twice_used(group, rows.narrow(0, 2 * group.rank(), 2));
    EXPECT_LT((ours - train_twice_used({}, rows)).abs().max().item<double>(), 1e-12);
    comm::test::finish_rank();
  });
}

/// CUDA and NCCL are first used after init(), so they end before what init() registers.
TEST(RanksWithCards, HorovodEndsBeforeCudaAtTheEndOfMain) {
  static const Card card;
  use_cards();
  with_ranks(2, [] {
    horovod::init();
    const at::Tensor sum = horovod::allreduce(at::ones({3}, at::kCUDA), "ones", horovod::Sum);
    EXPECT_TRUE(at::equal(sum.cpu(), at::full({3}, 2.0F)));
    std::exit(HasFailure() ? 1 : 0);
  });
}

}  // namespace
}  // namespace funicular::card::ranks_tests
