// Claims about tokens that are drawn from rows of logits.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "funicular/base/random.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/row_operations.h"
#include "tests/team_kernels.h"

namespace funicular::nn {
namespace {

at::Tensor uniforms_of(int64_t rows, uint64_t seed) {
  const at::Tensor values = at::empty({rows}, at::kDouble);
  for (int64_t r = 0; r < rows; ++r)
    values.data_ptr<double>()[r] =
        uniform(philox(make_key(seed, Purpose::user), make_counter(0, static_cast<uint32_t>(r), 9)));
  return values;
}

at::Tensor draw(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms) {
  const at::Tensor tokens = at::full({logits.size(0)}, -1, logits.options().dtype(at::kLong));
  sample_rows(logits, bias, uniforms, tokens, {});
  return tokens;
}

TEST(Sampling, TokensComeAsOftenAsSoftmaxSays) {
  constexpr int64_t kRows = 40000, kWords = 61;
  torch::manual_seed(3);
  const at::Tensor logits = torch::randn({kWords}) * 1.5, bias = torch::randn({kWords});
  const at::Tensor expected = at::softmax((logits + bias).to(at::kDouble), -1) * kRows;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor tokens = draw(logits.to(type).repeat({kRows, 1}), bias.to(type), uniforms_of(kRows, 1));
    const at::Tensor counts = at::bincount(tokens, {}, kWords).to(at::kDouble);
    ASSERT_EQ(counts.numel(), kWords);
    const double chi_square = ((counts - expected).square() / expected).sum().item<double>();
    // 60 degrees of freedom: above 110 in one of 10,000 experiments, below 27 in as many.
    EXPECT_LT(chi_square, 110);
    EXPECT_GT(chi_square, 27) << "uniform numbers that are none";
  }
}

/// The definition: the first token whose cumulative probability is above the uniform number.
at::Tensor by_definition(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms) {
  const at::Tensor shares = at::softmax(logits.to(at::kDouble) + bias.to(at::kDouble), -1).cumsum(-1);
  return at::searchsorted(shares, uniforms.unsqueeze(1), false, /*right=*/true).squeeze(1);
}

TEST(Sampling, ATokenIsTheFirstWhoseCumulativeProbabilityIsAboveTheUniformNumber) {
  for (const int64_t words : {1, 2, 7, 127, 128, 129, 255, 1000, 30522, 65537, 70001}) {
    torch::manual_seed(words);
    const int64_t rows = words > 10000 ? 40 : 300;
    const at::Tensor logits = torch::randn({rows, words}, torch::kDouble) * 2,
                     bias = torch::randn({words}, torch::kDouble), uniforms = uniforms_of(rows, 5);
    const at::Tensor expected = by_definition(logits, bias, uniforms);
    EXPECT_TRUE(at::equal(draw(logits, bias, uniforms), expected)) << words;
    // float32 draws another token only near the border of two.
    const at::Tensor rounded = draw(logits.to(at::kFloat), bias.to(at::kFloat), uniforms);
    EXPECT_LT(rounded.ne(expected).sum().item<int64_t>(), 2 + rows / 100) << words;
  }
}

TEST(Sampling, OfNarrowLogitsTokensAreDrawnInFloat32) {
  torch::manual_seed(8);
  const at::Tensor logits = (torch::randn({500, 3001}) * 2).to(at::kBFloat16), bias = torch::randn({3001});
  const at::Tensor uniforms = uniforms_of(500, 6);
  const at::Tensor wide = draw(logits.to(at::kFloat), bias, uniforms);
  EXPECT_TRUE(at::equal(draw(logits, bias, uniforms), wide));
  EXPECT_LT(wide.ne(by_definition(logits.to(at::kFloat), bias, uniforms)).sum().item<int64_t>(), 5);
}

TEST(Sampling, TheKernelsForGpusDrawTheSame) {
  torch::manual_seed(9);
  const at::Tensor logits = torch::randn({200, 777}, torch::kDouble),
                   bias = torch::randn({777}, torch::kDouble);
  const at::Tensor uniforms = uniforms_of(200, 7), expected = draw(logits, bias, uniforms);
  const TeamKernels team;
  const auto placed = [&](const at::Tensor& value) { return value.to(team.place()); };
  EXPECT_TRUE(at::equal(draw(placed(logits), placed(bias), placed(uniforms)).cpu(), expected));
}

TEST(Sampling, WhatHasNoProbabilityIsNeverDrawn) {
  const at::Tensor bias = at::zeros({400});
  const at::Tensor logits = at::full({3, 400}, -1e30f);
  logits.select(1, 200).fill_(3);
  logits.select(1, 250).fill_(3);
  const at::Tensor uniforms = torch::tensor({1e-12, 0.4999, 1 - 0x1p-53}, torch::kDouble);
  EXPECT_TRUE(at::equal(draw(logits, bias, uniforms), torch::tensor({200, 200, 250}, torch::kLong)));
  // The first of two blocks holds just what the second one begins at.
  const at::Tensor halves = at::full({1, 400}, -1e30f);
  halves.select(1, 20).fill_(3);
  halves.select(1, 200).fill_(3);
  EXPECT_EQ(draw(halves, bias, torch::tensor({0.5}, torch::kDouble)).item<int64_t>(), 200);
  // Nor does damage lead out of the vocabulary: the loss is what tells of it.
  logits.fill_(NAN);
  const at::Tensor tokens = draw(logits, bias, uniforms);
  EXPECT_TRUE(tokens.ge(0).logical_and(tokens.lt(400)).all().item<bool>()) << tokens;
}

TEST(Sampling, BesideALossTheTokensAreOfItsLogitsTileByTile) {
  torch::manual_seed(4);
  constexpr int64_t kRows = kLogitRows + 77, kWords = 211, kWidth = 12;
  const auto leaf = [](const at::Tensor& value) { return value.clone().set_requires_grad(true); };
  const at::Tensor hidden = torch::randn({kRows, kWidth}, torch::kDouble),
                   weight = torch::randn({kWords, kWidth}, torch::kDouble) * 0.5,
                   bias = torch::randn({kWords}, torch::kDouble), uniforms = uniforms_of(kRows, 8);
  const at::Tensor labels = torch::arange(kRows) % kWords;
  const at::Tensor logits = at::linear(hidden, weight);
  for (const bool learns : {true, false}) {
    const at::Tensor mine[] = {learns ? leaf(hidden) : hidden, learns ? leaf(weight) : weight,
                               learns ? leaf(bias) : bias};
    VocabularyDraw drawn;
    drawn.uniforms = uniforms;
    drawn.wants_best = true;
    const at::Tensor loss = vocabulary_cross_entropy(mine[0], mine[1], mine[2], labels, &drawn);
    EXPECT_TRUE(at::equal(drawn.tokens, by_definition(logits, bias, uniforms)));
    EXPECT_TRUE(at::equal(drawn.best, (logits + bias).argmax(-1)));
    EXPECT_FALSE(drawn.tokens.requires_grad());
    const at::Tensor theirs[] = {leaf(hidden), leaf(weight), leaf(bias)};
    const at::Tensor plain = vocabulary_cross_entropy(theirs[0], theirs[1], theirs[2], labels);
    EXPECT_TRUE(at::equal(loss, plain)) << "the draw changes no loss";
    if (!learns) continue;
    loss.backward();
    plain.backward();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(mine[i].grad(), theirs[i].grad())) << i;
  }
}

TEST(Sampling, OfNoRowsNothingIsDrawn) {
  VocabularyDraw drawn;
  drawn.uniforms = at::empty({0}, at::kDouble);
  const at::Tensor loss = vocabulary_cross_entropy(at::empty({0, 4}), torch::randn({9, 4}), torch::randn({9}),
                                                   at::empty({0}, at::kLong), &drawn);
  EXPECT_EQ(drawn.tokens.numel(), 0);
  EXPECT_EQ(loss.item<float>(), 0);
}

}  // namespace
}  // namespace funicular::nn
