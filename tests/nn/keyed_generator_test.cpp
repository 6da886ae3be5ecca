#include "funicular/nn/device/keyed_generator.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <future>

namespace funicular::nn::device {
namespace {

TEST(KeyedGenerator, GivesTheSeedsNumbersAndTheProcessGoesOnAsIfNothingHadBeenDrawn) {
  const auto draw = [] { return at::rand({4}); };
  torch::manual_seed(7);
  draw();
  const at::Tensor expected = draw();
  torch::manual_seed(7);
  draw();
  at::Tensor first, second, other;
  {
    const KeyedGenerator keyed(at::kCPU, 11);
    first = draw();
  }
  {
    const KeyedGenerator keyed(at::kCPU, 11);
    second = draw();
  }
  {
    const KeyedGenerator keyed(at::kCPU, 12);
    other = draw();
  }
  EXPECT_TRUE(at::equal(first, second));
  EXPECT_FALSE(at::equal(first, other));
  EXPECT_TRUE(at::equal(draw(), expected));
}

TEST(KeyedGenerator, WithoutASeedDoesNothing) {
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({4});
  torch::manual_seed(7);
  const KeyedGenerator keyed(at::kCPU, std::nullopt);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(KeyedGenerator, GivesEachOfTwoThreadsTheNumbersOfItsSeed) {
  const auto draw = [](uint64_t seed) {
    const KeyedGenerator keyed(at::kCPU, seed);
    const at::Tensor first = at::rand({64});
    return at::cat({first, at::rand({64})});
  };
  torch::manual_seed(7);
  const at::Tensor expected = at::rand({4});
  torch::manual_seed(7);
  const at::Tensor wanted[] = {draw(1), draw(2)};
  std::future<at::Tensor> other;
  {
    const KeyedGenerator keyed(at::kCPU, 1);
    const at::Tensor first = at::rand({64});
    other = std::async(std::launch::async, draw, 2);
    EXPECT_EQ(other.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
    EXPECT_TRUE(at::equal(at::cat({first, at::rand({64})}), wanted[0]));
  }
  EXPECT_TRUE(at::equal(other.get(), wanted[1]));
  EXPECT_TRUE(at::equal(at::rand({4}), expected)) << "the state is what it was";
}

}  // namespace
}  // namespace funicular::nn::device
