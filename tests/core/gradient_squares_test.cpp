// Claims about sums of squares of gradients: a sum is given only while it is true.
#include "funicular/core/gradient_squares.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

namespace funicular {
namespace {

TEST(GradientSquaresOfAThread, AreTheInnermostOfThatThreadOnly) {
  EXPECT_EQ(GradientSquares::current(), nullptr);
  {
    GradientSquares outer;
    EXPECT_EQ(GradientSquares::current(), &outer);
    {
      GradientSquares inner;
      EXPECT_EQ(GradientSquares::current(), &inner);
    }
    EXPECT_EQ(GradientSquares::current(), &outer);
    std::thread([] { EXPECT_EQ(GradientSquares::current(), nullptr); }).join();
  }
  EXPECT_EQ(GradientSquares::current(), nullptr);
}

TEST(GradientSquaresOfAThread, AreNotThoseOfATensorThatWasWrittenToSince) {
  GradientSquares squares;
  const at::Tensor a = torch::ones({3}), b = torch::ones({3});
  EXPECT_FALSE(squares.of(a).has_value());
  squares.set(a, 3);
  EXPECT_EQ(squares.of(a), 3);
  EXPECT_FALSE(squares.of(b).has_value());

  a.mul_(2);
  EXPECT_FALSE(squares.of(a).has_value());
  squares.set(a, 12);
  a.narrow(0, 1, 1).zero_();  // through a view
  EXPECT_FALSE(squares.of(a).has_value());
  squares.set(a, 8);
  a.unsafeGetTensorImpl()->bump_version();  // as kernels do that write past LibTorch
  EXPECT_FALSE(squares.of(a).has_value());
  squares.set(a, 8);
  EXPECT_EQ(squares.of(a), 8);
}

TEST(GradientSquaresOfAThread, AreNotThoseOfATensorInTheSamePlace) {
  GradientSquares squares;
  for (int i = 0; i < 100; ++i) {
    const at::Tensor gradient = torch::ones({64});
    EXPECT_FALSE(squares.of(gradient).has_value());
    squares.set(gradient, 64);
  }
}

}  // namespace
}  // namespace funicular
