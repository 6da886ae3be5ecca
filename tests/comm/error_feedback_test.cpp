// Claims about rounding with error feedback, against sums of the exact values.
#include "funicular/comm/error_feedback.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "../format/scratch.h"

namespace funicular::comm {
namespace {

TEST(ErrorFeedback, WhatIsSummedOverTheStepsIsThatWithoutRoundingUpToOneResidual) {
  for (const auto type : {torch::kBFloat16, torch::kHalf})
    for (const auto wide : {torch::kFloat, torch::kDouble}) {
      torch::manual_seed(1);
      ErrorFeedback feedback(1000, torch::dtype(wide), type, 2);
      auto exact = torch::zeros({1000}, torch::kDouble), summed = exact.clone(), plain = exact.clone();
      const auto constant =
          torch::rand({1000}, torch::kDouble) * 1e-3;  // rounding alone errs the same way each time
      for (int step = 1; step <= 200; ++step) {
        const auto gradient = (constant + torch::randn({1000}, torch::kDouble) * 1e-6).to(wide);
        exact += gradient.to(torch::kDouble);
        plain += gradient.to(type).to(torch::kDouble);
        summed += feedback.compress(gradient, 0).to(torch::kDouble);
        EXPECT_LT((summed + feedback.residual().to(torch::kDouble) - exact).abs().max().item<double>(), 1e-7);
      }
      const double ours = (summed - exact).abs().max().item<double>(),
                   without = (plain - exact).abs().max().item<double>();
      EXPECT_LT(ours, 8e-6) << "half of the last bit of one value";
      EXPECT_GT(without, 10 * ours) << "the comparison must show something";
    }
}

TEST(ErrorFeedback, PiecesHaveTheirOwnResiduals) {
  torch::manual_seed(2);
  const auto gradient = torch::randn({100});
  ErrorFeedback whole(100, torch::dtype(torch::kFloat), torch::kBFloat16, 2),
      pieces(100, torch::dtype(torch::kFloat), torch::kBFloat16, 2);
  for (int step = 0; step < 3; ++step) {
    const auto expected = whole.compress(gradient, 0).clone();
    const auto last = pieces.compress(gradient.narrow(0, 30, 70), 30).clone(),
               first = pieces.compress(gradient.narrow(0, 0, 30), 0);
    EXPECT_TRUE(torch::equal(torch::cat({first, last}), expected));
    EXPECT_TRUE(torch::equal(pieces.residual(), whole.residual()));
  }
}

TEST(ErrorFeedback, WhatHalfCannotHoldComesLaterAndNoSumOverflows) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    ErrorFeedback feedback(1, torch::dtype(torch::kFloat), torch::kHalf, ranks);
    const auto part = feedback.compress(torch::full({1}, 7e4f), 0).clone();
    auto around = part.clone();  // rounded at each rank, as around the ring
    for (int rank = 1; rank < ranks; ++rank) around += part;
    EXPECT_TRUE(torch::isfinite(around).item<bool>()) << ranks;
    EXPECT_GT(part.item<double>(), 0.95 * 65504 / ranks) << ranks;
    double sum = part.item<double>();
    for (int step = 0; step < 2 * ranks; ++step)
      sum += feedback.compress(torch::zeros({1}), 0).item<double>();
    EXPECT_EQ(sum, 7e4) << ranks;
  }
}

TEST(ErrorFeedback, WhatIsNotFiniteStaysSoAndLeavesNoTrace) {
  ErrorFeedback feedback(3, torch::dtype(torch::kFloat), torch::kBFloat16, 2);
  const auto out = feedback.compress(torch::tensor({INFINITY, NAN, 1.0f}), 0);
  EXPECT_TRUE(std::isinf(out[0].item<float>()));
  EXPECT_TRUE(std::isnan(out[1].item<float>()));
  EXPECT_TRUE(torch::equal(feedback.residual(), torch::zeros({3})));
}

TEST(ErrorFeedback, OtherTypesAreRefused) {
  EXPECT_NE(error_of([] {
              ErrorFeedback(1, torch::dtype(torch::kBFloat16), torch::kBFloat16, 2);
            }).find("float or double"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              ErrorFeedback(1, torch::dtype(torch::kFloat), torch::kFloat, 2);
            }).find("bfloat16 or half"),
            std::string::npos);
}

}  // namespace
}  // namespace funicular::comm
