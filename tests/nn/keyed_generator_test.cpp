#include "funicular/nn/device/keyed_generator.h"

#include <gtest/gtest.h>
#include <torch/types.h>

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

}  // namespace
}  // namespace funicular::nn::device
