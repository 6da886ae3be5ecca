// Products, activations and losses against the same mathematics written with plain LibTorch operations in float64, all
// operations in a chain, and what holds of each: threads, samples and numbers that are none.

#include "funicular/nn/functional.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "formulas.h"
#include "funicular/base/error.h"
#include "with_kernels.h"

namespace funicular::nn {
namespace {

class Functional : public testing::TestWithParam<KernelKind> {
 protected:
  /// What the free functions of these names make, where the kernels read it.
  at::Tensor random(at::IntArrayRef shape, uint64_t seed) const {
    return nn::random(shape, seed, kernels_.place());
  }
  Keys make_keys(std::vector<int32_t> lengths) const {
    return nn::make_keys(std::move(lengths), kernels_.place());
  }
  at::Tensor range(int64_t count) const {
    return at::arange(count, at::TensorOptions(at::kLong).device(kernels_.place()));
  }
  at::Tensor zeros(at::IntArrayRef shape, at::ScalarType type) const {
    return at::zeros(shape, at::TensorOptions(type).device(kernels_.place()));
  }
  /// Rows whose logits make two tiles and a part of one.
  int64_t several_tiles() const {
    return (kernels_.place().is_cuda() ? kLogitRowsOnGpu : kLogitRows) * 5 / 2;
  }
  at::Tensor placed(const at::Tensor& value) const { return value.to(kernels_.place()); }

 private:
  const WithKernels kernels_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(, Functional, testing::Values(KernelKind::processor, KernelKind::team),
                         [](const auto& info) { return name_of(info.param); });

/// A gradient comes back to `wanted` where that of the trunk lay.
void expect_in_place(const at::Tensor& wanted, const Branch& branch) {
  const void *before = nullptr, *after = nullptr;
  branch.trunk.register_hook([&](const at::Tensor& gradient) { before = gradient.data_ptr(); });
  wanted.register_hook([&](const at::Tensor& gradient) { after = gradient.data_ptr(); });
  (branch.output * 2 + branch.trunk * 3).sum().backward();
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(before, after);
}

TEST_P(Functional, TrunksGradientsAreAddedToInPlace) {
  const at::Tensor up = random({64, 32}, 1), down = random({32, 64}, 2), bias = random({64}, 3);
  const at::Tensor x = random({96, 32}, 4).requires_grad_() * 1;
  expect_in_place(x, linear_branch(x, random({32, 32}, 6)));
  const at::Tensor y = random({96, 32}, 5).requires_grad_() * 1;
  expect_in_place(y, feed_forward_branch(y, up, bias, down, Activation::gelu));
}

/// x + linear(feed_forward(x)) and so on: what reads the trunk, the branch, both or neither.
TEST_P(Functional, BranchesAddTheTrunksGradientToTheirOwn) {
  for (const bool use_output : {true, false})
    for (const bool use_trunk : {true, false}) {
      if (!use_output && !use_trunk) continue;
      std::vector<at::Tensor> mine = {random({70, 9}, 1), random({21, 9}, 2), random({21}, 3),
                                      random({9, 21}, 4), random({9, 9}, 5)},
                              theirs;
      for (const at::Tensor& t : mine) theirs.push_back(t.detach().clone().set_requires_grad(true));
      const at::Tensor upstream = random({70, 9}, 6).detach();
      const auto join = [&](const at::Tensor& output, const at::Tensor& trunk) {
        return use_output && use_trunk ? output + 2 * trunk : use_output ? output : 2 * trunk;
      };
      const Branch first = feed_forward_branch(mine[0], mine[1], mine[2], mine[3], Activation::gelu);
      const Branch second = linear_branch(join(first.output, first.trunk), mine[4]);
      join(second.output, second.trunk).backward(upstream);
      const at::Tensor a =
          join(at::linear(at::gelu(at::linear(theirs[0], theirs[1], theirs[2])), theirs[3]), theirs[0]);
      join(at::linear(a, theirs[4]), a).backward(upstream);
      for (size_t i = 0; i < mine.size(); ++i) {
        ASSERT_EQ(mine[i].grad().defined(), theirs[i].grad().defined()) << i;
        if (!theirs[i].grad().defined()) continue;
        EXPECT_LT(difference(mine[i].grad(), theirs[i].grad()), 1e-12) << "input " << i;
      }
    }
}

TEST_P(Functional, LinearAddsToTheGradientsThatAreThere) {
  const at::Tensor x = random({70, 9}, 1), weight = random({5, 9}, 2);
  const at::Tensor x2 = x.detach().clone().set_requires_grad(true),
                   weight2 = weight.detach().clone().set_requires_grad(true);
  const at::Tensor upstream = random({70, 5}, 4).detach();
  for (int pass = 0; pass < 2; ++pass) {
    nn::linear(x, weight).backward(upstream);
    at::linear(x2, weight2).backward(upstream);
  }
  EXPECT_LT(difference(x.grad(), x2.grad()), 1e-13);
  EXPECT_LT(difference(weight.grad(), weight2.grad()), 1e-13);
}

TEST_P(Functional, FrozenWeightsGetNoGradient) {
  const at::Tensor x = random({4, 3}, 1), weight = random({2, 3}, 2).detach(), bias = random({2}, 3);
  bias_activation(nn::linear(x, weight), bias, Activation::none).sum().backward();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_TRUE(bias.grad().defined());
}

at::Tensor plain_activation(const at::Tensor& x, Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return at::gelu(x);
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::relu:
      return at::relu(x);
    case Activation::silu:
      return at::silu(x);
    case Activation::tanh:
      return at::tanh(x);
    case Activation::none:
      break;
  }
  return x.clone();
}

constexpr Activation kActivations[] = {Activation::none, Activation::gelu, Activation::gelu_tanh,
                                       Activation::relu, Activation::silu, Activation::tanh};

/// The bfloat16s from -8 to 8: the error is at most twice that of rounding, plus 4e-7 in the tail of the
/// value and 2e-5 where the slope crosses zero.
TEST_P(Functional, GeluOfBfloat16IsAsExactAsItsBits) {
  const at::Tensor all = placed(at::arange(0, 65536, at::kInt)).to(at::kShort).view(at::kBFloat16);
  const at::Tensor values = all.index({all.to(at::kDouble).abs() <= 8});
  const int64_t width = 37, rows = (values.size(0) + width - 1) / width;
  const at::Tensor padding = zeros({rows * width - values.size(0)}, at::kBFloat16);
  const at::Tensor bias = random({width}, 3).detach();
  for (const bool biased : {false, true}) {
    const at::Tensor x = at::cat({values, padding}).view({rows, width}).clone().set_requires_grad(true);
    const at::Tensor b = biased ? bias : zeros({width}, at::kFloat);
    const at::Tensor y = bias_activation(x, b.to(at::kFloat), Activation::gelu);
    y.backward(at::ones_like(y));
    const at::Tensor
        exact = (x.detach().to(at::kFloat) + b.to(at::kFloat)).to(at::kDouble).set_requires_grad(true),
        wanted = exact * at::special_erfc(exact * -std::sqrt(0.5)) / 2;
    wanted.backward(at::ones_like(wanted));
    const auto worst = [&](const at::Tensor& found, const at::Tensor& value, double absolute) {
      const at::Tensor error = (found.detach().to(at::kDouble) - value).abs();
      return (error - value.abs() * std::exp2(-8) - absolute).max().item<double>();
    };
    EXPECT_GT(rows, 800);
    EXPECT_LE(worst(y, wanted.detach(), 4e-7), 0) << biased;
    EXPECT_LE(worst(x.grad(), exact.grad(), 2e-5), 0) << biased;
  }
}

TEST_P(Functional, GeluOfBfloat16FarOutIsZeroOrItsInput) {
  const at::Tensor x = placed(at::tensor({-1e30, -50.0, -6.0, 6.0, 50.0, 1e30, std::nan("")}, at::kDouble))
                           .to(at::kBFloat16)
                           .view({1, 7})
                           .set_requires_grad(true);
  const at::Tensor y = bias_activation(x, zeros({7}, at::kFloat), Activation::gelu);
  y.backward(at::ones_like(y));
  for (int64_t i = 0; i < 6; ++i) {
    const double in = x[0][i].item<double>(), out = y[0][i].item<double>(),
                 slope = x.grad()[0][i].item<double>();
    EXPECT_NEAR(slope, in > 0, 1e-6) << in;
    if (in > 0)
      EXPECT_EQ(out, in);
    else
      EXPECT_NEAR(out, 0, 1e-7) << in;
  }
  EXPECT_TRUE(std::isnan(y[0][6].item<double>()));
  EXPECT_TRUE(std::isnan(x.grad()[0][6].item<double>()));
}

TEST_P(Functional, ActivationsEqualLibTorchsWithGradients) {
  for (const Activation kind : kActivations)
    for (const auto type : {at::kDouble, at::kFloat}) {
      // From the far negative to the far positive, where exponentials must neither overflow nor vanish.
      const at::Tensor x = placed(at::linspace(-40, 40, 130 * 37, at::kDouble))
                               .view({130, 37})
                               .to(type)
                               .set_requires_grad(true);
      const at::Tensor bias = random({37}, 2).detach().to(type).set_requires_grad(true);
      const at::Tensor x2 = x.detach().to(at::kDouble).set_requires_grad(true),
                       bias2 = bias.detach().to(at::kDouble).set_requires_grad(true);
      const at::Tensor upstream = random({130, 37}, 4).detach();
      const at::Tensor a = bias_activation(x, bias, kind), b = plain_activation(x2 + bias2, kind);
      a.backward(upstream.to(type));
      b.backward(upstream);
      const double bound = type == at::kDouble ? 1e-14 : 1e-6;
      const auto where = testing::Message() << "activation " << static_cast<int>(kind) << " " << type;
      EXPECT_LT(difference(a.to(at::kDouble), b), bound) << where;
      EXPECT_LT(difference(x.grad().to(at::kDouble), x2.grad()), bound) << where;
      EXPECT_LT(difference(bias.grad().to(at::kDouble), bias2.grad()), 10 * bound) << where;
    }
}

TEST_P(Functional, FeedForwardEqualsItsFormulaWithGradients) {
  std::vector<at::Tensor> mine = {random({70, 9}, 1), random({21, 9}, 2), random({21}, 3),
                                  random({9, 21}, 4)},
                          theirs;
  for (const at::Tensor& t : mine) theirs.push_back(t.detach().clone().set_requires_grad(true));
  const at::Tensor upstream = random({70, 9}, 5).detach();
  for (int pass = 0; pass < 2; ++pass) {
    feed_forward(mine[0], mine[1], mine[2], mine[3], Activation::gelu).backward(upstream);
    at::linear(at::gelu(at::linear(theirs[0], theirs[1], theirs[2])), theirs[3]).backward(upstream);
  }
  for (size_t i = 0; i < mine.size(); ++i)
    EXPECT_LT(difference(mine[i].grad(), theirs[i].grad()), 1e-12) << "input " << i;
}

/// All fused operations in one chain; gives the output and all gradients, in double.
std::vector<at::Tensor> chain(at::ScalarType type, at::ScalarType gradient_type, const Keys& keys,
                              int64_t inner) {
  const int64_t tokens = keys.packing.tokens(), width = 72;
  const at::Device place = keys.packing.positions.device();
  const at::ScalarType vectors = type == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<at::Tensor> leaves;
  const auto leaf = [&](at::IntArrayRef shape, double scale) -> at::Tensor {
    // Rounded to 8 bits first, so that every type starts from the same numbers.
    const at::Tensor value = (random(shape, leaves.size() + 1, place).detach() * scale)
                                 .to(at::kBFloat16)
                                 .to(shape.size() > 1 ? type : vectors);
    value.set_requires_grad(true);
    if (shape.size() > 1) value.mutable_grad() = at::zeros_like(value, gradient_type);
    leaves.push_back(value);
    return value;
  };
  const at::Tensor word = leaf({50, width}, 1), position = leaf({140, width}, 1),
                   segment = leaf({2, width}, 1);
  const NormWeights norm{leaf({width}, 1), leaf({width}, 1), 1e-12};
  const at::Tensor qkv = leaf({3 * width, width}, 0.1), qkv_bias = leaf({3 * width}, 0.1);
  const at::Tensor up = leaf({inner, width}, 0.1), up_bias = leaf({inner}, 0.1),
                   down = leaf({width, inner}, 0.1), down_bias = leaf({width}, 0.1);
  const at::Tensor all = at::arange(tokens, at::TensorOptions(at::kLong).device(place)), ids = all * 7 % 11,
                   types = all % 2;
  const at::Tensor x = embed({word, position, segment, 0}, ids, types, norm, keys.packing,
                             {0.1, Purpose::dropout_embedding, 0});
  const at::Tensor y = residual_norm(
      attention(nn::linear(x, qkv), qkv_bias, keys.packing, 3, {0.1, Purpose::dropout_attention, 0}, {},
                /*repeatable=*/true),
      {}, x, norm, keys.packing, {0.1, Purpose::dropout_attention_output, 0});
  const at::Tensor z = residual_norm(feed_forward(y, up, up_bias, down, Activation::gelu), down_bias, y, norm,
                                     keys.packing, {0.1, Purpose::dropout_output, 0});
  const at::Tensor loss = vocabulary_cross_entropy(z, word, leaf({50}, 0.1), ids);
  (loss * 0.125).backward();
  std::vector<at::Tensor> results = {z.detach().to(at::kDouble), loss.detach().to(at::kDouble)};
  for (const at::Tensor& t : leaves) results.push_back(t.grad().to(at::kDouble));
  return results;
}

/// That the operations fit together. Each by itself is compared with its formula, to few roundings, by Rounding.* and
/// Attention.*, which notice an error of a percent.
TEST_P(Functional, SixteenBitTypesKeepTheDoubleResultUpToTheirRounding) {
  const Keys keys = make_keys({130, 40, 1, 63});
  const std::pair<at::ScalarType, at::ScalarType> cases[] = {{at::kBFloat16, at::kBFloat16},
                                                             {at::kBFloat16, at::kFloat},
                                                             {at::kHalf, at::kHalf},
                                                             {at::kHalf, at::kFloat},
                                                             {at::kFloat, at::kFloat}};
  for (const int64_t inner : {100, 128}) {  // 128 may be in tiles
    const auto exact = chain(at::kDouble, at::kDouble, keys, inner);
    for (const auto& [type, gradient] : cases) {
      // Of some 40 roundings in a row, forward and backward, 0.4 √40 remain. In float the sums count, too.
      const double bound = type == at::kFloat ? 5e-6 : 4 * unit_roundoff(type);
      const auto rounded = chain(type, gradient, keys, inner);
      for (size_t i = 0; i < exact.size(); ++i) {
        const double error = ((rounded[i] - exact[i]).norm() / exact[i].norm()).item<double>();
        EXPECT_LT(error, bound) << type << " with gradients in " << gradient << ", result " << i;
      }
    }
  }
}

TEST_P(Functional, VocabularyCrossEntropyEqualsItsFormulaOverSeveralTiles) {
  const int64_t rows = several_tiles();
  const at::Tensor hidden = random({rows, 12}, 1), weight = random({77, 12}, 2), bias = random({77}, 3);
  const at::Tensor hidden2 = hidden.detach().clone().set_requires_grad(true),
                   weight2 = weight.detach().clone().set_requires_grad(true),
                   bias2 = bias.detach().clone().set_requires_grad(true);
  const at::Tensor labels = range(rows) * 31 % 77;
  const at::Tensor a = vocabulary_cross_entropy(hidden, weight, bias, labels);
  const at::Tensor b =
      at::cross_entropy_loss(at::linear(hidden2, weight2, bias2), labels, {}, at::Reduction::Sum);
  (a * 0.25).backward();
  (b * 0.25).backward();
  EXPECT_LT(difference(a, b), 1e-13);
  EXPECT_LT(difference(hidden.grad(), hidden2.grad()), 1e-12);
  EXPECT_LT(difference(weight.grad(), weight2.grad()), 1e-12);
  EXPECT_LT(difference(bias.grad(), bias2.grad()), 1e-12);
}

TEST_P(Functional, VocabularyCrossEntropyTakesLogitsOfAnySize) {
  const at::Tensor values = random({40, 12}, 1).detach() * 3000, weight = random({77, 12}, 2),
                   bias = random({77}, 3);
  const at::Tensor hidden = values.clone().set_requires_grad(true),
                   hidden2 = values.clone().set_requires_grad(true);
  const at::Tensor labels = range(40) * 31 % 77;
  const at::Tensor a = vocabulary_cross_entropy(hidden, weight, bias, labels);
  const at::Tensor b =
      at::cross_entropy_loss(at::linear(hidden2, weight, bias), labels, {}, at::Reduction::Sum);
  a.backward();
  b.backward();
  EXPECT_LT(std::abs(a.item<double>() / b.item<double>() - 1), 1e-12);
  EXPECT_LT(difference(hidden.grad(), hidden2.grad()), 1e-9);
}

/// Sums of 1e-5, of which fp16 has 7 bits: before the loss scale they must not be in it.
TEST_P(Functional, VocabularyCrossEntropyAddsTilesOfSixteenBitTypesInFloat) {
  const int64_t rows = several_tiles(), width = 12, words = 77;
  const double scale = 4096;
  const at::Tensor values = (random({rows, width}, 1).detach() * 2e-6).to(at::kHalf),
                   table = random({words, width}, 2).detach().to(at::kHalf),
                   bias = zeros({words}, at::kFloat);
  const at::Tensor labels = range(rows) * 31 % words;
  const auto gradient = [&](at::ScalarType type, at::ScalarType gradient_type) {
    const at::Tensor hidden = values.to(type).set_requires_grad(true),
                     weight = table.to(type).set_requires_grad(true);
    const at::Tensor vector = bias.to(type == at::kDouble ? at::kDouble : at::kFloat).set_requires_grad(true);
    weight.mutable_grad() = zeros({words, width}, gradient_type);
    (vocabulary_cross_entropy(hidden, weight, vector, labels) * scale).backward();
    return weight.grad().to(at::kDouble);
  };
  const at::Tensor exact = gradient(at::kDouble, at::kDouble);
  for (const at::ScalarType type : {at::kFloat, at::kHalf})
    EXPECT_LT(((gradient(at::kHalf, type) - exact).norm() / exact.norm()).item<double>(), 1e-3) << type;
}

TEST_P(Functional, ResultsDoNotDependOnTheNumberOfThreads) {
  const Keys keys = make_keys({130, 40, 7, 64, 65});
  const int64_t tokens = keys.packing.tokens();
  const at::Tensor ids = range(tokens) * 7 % 11, types = range(tokens) % 2;
  const auto run = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const auto leaf = [&](at::IntArrayRef shape, uint64_t seed) {
      return random(shape, seed).detach().to(at::kFloat).set_requires_grad(true);
    };
    std::vector<at::Tensor> leaves = {leaf({20, 32}, 1),     leaf({140, 32}, 2), leaf({2, 32}, 3),
                                      leaf({32}, 4),         leaf({32}, 5),      leaf({32}, 6),
                                      leaf({tokens, 96}, 7), leaf({96}, 8)};
    const at::Tensor x =
        embed({leaves[0], leaves[1], leaves[2], 0}, ids, types, {leaves[3], leaves[4], 1e-12}, keys.packing,
              {0.1, Purpose::dropout_embedding, 0});
    const at::Tensor y =
        attention(leaves[6], leaves[7], keys.packing, 2, {0.1, Purpose::dropout_attention, 0});
    const at::Tensor z = residual_norm(y, leaves[5], x, {leaves[3], leaves[4], 1e-12}, keys.packing,
                                       {0.1, Purpose::dropout_output, 0});
    z.backward(at::ones_like(z));
    std::vector<at::Tensor> results = {z.detach()};
    for (const at::Tensor& t : leaves) results.push_back(t.grad());
    at::set_num_threads(before);
    return results;
  };
  const auto one = run(1);
  for (const int threads : {2, 3}) {
    const auto more = run(threads);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(at::equal(one[i], more[i])) << threads << " threads, result " << i;
  }
}

TEST_P(Functional, NoNumberIsHidden) {
  const Keys keys = make_keys({5});
  const at::Tensor qkv = random({5, 12}, 1).detach();
  qkv[2][5] = std::nan("");
  EXPECT_TRUE(attention(qkv, zeros({12}, at::kDouble), keys.packing, 1, {}).isnan().any().item<bool>());
  const at::Tensor hidden = random({2, 4}, 1).detach(), weight = random({6, 4}, 2).detach(),
                   bias = random({6}, 3).detach();
  bias[3] = std::nan("");
  EXPECT_TRUE(vocabulary_cross_entropy(hidden, weight, bias, range(2)).isnan().item<bool>());
}

/// On the processor, whatever computes: of a batch that has gone to a GPU the model asks before it goes.
TEST_P(Functional, RefusesTokensAndTypesOutsideTheTables) {
  const Keys keys = nn::make_keys({3});
  const EmbeddingTables tables{nn::random({10, 4}, 1).detach(), nn::random({5, 4}, 2).detach(),
                               nn::random({2, 4}, 3).detach(), -1};
  const NormWeights norm{at::ones({4}, at::kDouble), at::zeros({4}, at::kDouble), 1e-12};
  const auto run = [&](std::vector<int64_t> ids, std::vector<int64_t> types) {
    embed(tables, at::tensor(ids, at::kLong), at::tensor(types, at::kLong), norm, keys.packing, {});
  };
  EXPECT_NO_THROW(run({0, 9, 5}, {0, 1, 1}));
  EXPECT_THROW(run({0, 10, 5}, {0, 1, 1}), InputError);
  EXPECT_THROW(run({0, -1, 5}, {0, 1, 1}), InputError);
  EXPECT_THROW(run({0, 9, 5}, {0, 2, 1}), InputError);
}

TEST_P(Functional, DropoutIsTheSameForASampleWhereverItLiesInTheBatch) {
  const Keys both = make_keys({6, 9});
  const Packing second = Packing::from_lengths({9}, {1}, {both.packing.host_draw_ids[1]}, {kSeed, true})
                             .to(both.packing.positions.device());
  const DropoutSite site{0.3, Purpose::user, 1};
  const at::Tensor x = random({15, 24}, 1).detach();
  const at::Tensor together =
      dropout(x, both.packing.positions, both.packing.token_draws, both.packing.random, site);
  const at::Tensor alone =
      dropout(x.narrow(0, 6, 9), second.positions, second.token_draws, second.random, site);
  EXPECT_TRUE(at::equal(together.narrow(0, 6, 9), alone));
}

TEST_P(Functional, FloatKernelsKeepTheDoubleResultUpToRounding) {
  const Keys keys = make_keys({130, 40});
  const DropoutSite site{0.1, Purpose::dropout_attention, 0};
  const at::Tensor wide = random({170, 96}, 1), narrow = wide.detach().to(at::kFloat).set_requires_grad(true);
  const at::Tensor a = attention(narrow, zeros({96}, at::kFloat), keys.packing, 2, site),
                   b = attention(wide, zeros({96}, at::kDouble), keys.packing, 2, site);
  EXPECT_LT(difference(a.to(at::kDouble), b), 1e-6);
  a.backward(at::ones_like(a));
  b.backward(at::ones_like(b));
  EXPECT_LT(difference(narrow.grad().to(at::kDouble), wide.grad()), 5e-6);
}

TEST(Weights, ThatOtherTensorsMakeAreRefusedInTheBackwardPass) {
  const at::Tensor half = random({4, 6}, 1), x = random({3, 6}, 2);
  const at::Tensor weight = half * 2;
  try {
    nn::linear(x, weight).sum().backward();
    ADD_FAILURE() << "a gradient that goes nowhere is taken";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("computed from other tensors"), std::string::npos)
        << error.what();
  }
  nn::linear(x, half).sum().backward();
  EXPECT_TRUE(half.grad().defined());
}

}  // namespace
}  // namespace funicular::nn
