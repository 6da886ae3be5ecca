// Each operation in fewer bits against its formula in float64 on the same numbers. Bounds are counts of
// roundings, times the unit roundoff of the type: see distance in formulas.h.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <tuple>
#include <vector>

#include "formulas.h"
#include "funicular/nn/functional.h"
#include "tests/team_kernels.h"

namespace funicular::nn {
namespace {

class Rounding : public testing::TestWithParam<std::tuple<at::ScalarType, bool>> {
 protected:
  at::ScalarType type() const { return std::get<0>(GetParam()); }
  bool team() const { return std::get<1>(GetParam()); }
  at::Device place() const { return team_.place(); }
  /// A leaf of numbers of 8 bits in the tested type, or, as a vector, in that of vectors.
  at::Tensor leaf(at::IntArrayRef shape, uint64_t seed, double scale = 1) const {
    const at::Tensor value = (random(shape, seed, place()).detach() * scale).to(at::kBFloat16);
    return value.to(shape.size() > 1 ? type() : at::kFloat).set_requires_grad(true);
  }
  static std::vector<at::Tensor> wide(const std::vector<at::Tensor>& leaves) {
    std::vector<at::Tensor> result;
    for (const at::Tensor& t : leaves)
      result.push_back(t.detach().to(at::kDouble).clone().set_requires_grad(true));
    return result;
  }
  /// In 16 bits no result comes of more than four roundings in a row. In float the sums count, of up to some
  /// hundred numbers.
  void expect_near(const at::Tensor& found, const at::Tensor& expected, const std::string& what) const {
    const double roundings = type() == at::kFloat ? 16 : 1.5;
    EXPECT_LT(distance(found, expected), roundings * unit_roundoff(type())) << what;
  }

 private:
  TeamKernels team_{std::get<1>(GetParam())};
};

TEST_P(Rounding, OfTheResidualAndItsNormLeavesTheFormulaWhateverTheSizeOfNumbers) {
  const Keys keys = make_keys({5, 1, team() ? 20 : 130}, place());
  const int64_t tokens = keys.packing.tokens(), width = team() ? 40 : 200;
  for (const double probability : {0.0, 0.1})
    for (const double scale : {1.0, 1e-3})  // whose squares are below the larger epsilon
      for (const double epsilon : {1e-12, 1e-5}) {
        SCOPED_TRACE(testing::Message() << probability << " " << scale << " " << epsilon);
        const DropoutSite site{probability, Purpose::dropout_output, 2};
        const std::vector<at::Tensor> mine = {leaf({tokens, width}, 1, scale), leaf({width}, 2, scale),
                                              leaf({tokens, width}, 3, scale), leaf({width}, 4),
                                              leaf({width}, 5)},
                                      theirs = wide(mine);
        const at::Tensor upstream = leaf({tokens, width}, 6).detach();
        const at::Tensor a =
            residual_norm(mine[0], mine[1], mine[2], {mine[3], mine[4], epsilon}, keys.packing, site);
        at::Tensor x = theirs[0] + theirs[1];
        if (probability > 0) x = x * row_multipliers(keys.packing, width, site);
        const at::Tensor b = at::layer_norm(theirs[2] + x, {width}, theirs[3], theirs[4], epsilon);
        a.backward(upstream);
        b.backward(upstream.to(at::kDouble));
        expect_near(a, b, "output");
        const char* const names[] = {"input", "bias", "residual", "gamma", "beta"};
        for (size_t i = 0; i < mine.size(); ++i) expect_near(mine[i].grad(), theirs[i].grad(), names[i]);
      }
}

TEST_P(Rounding, OfActivationsLeavesTheirFormulas) {
  for (const Activation kind : {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::silu,
                                Activation::tanh, Activation::none}) {
    const std::vector<at::Tensor> mine = {leaf({130, 64}, 1), leaf({64}, 2)}, theirs = wide(mine);
    const at::Tensor upstream = leaf({130, 64}, 3).detach(), x = theirs[0] + theirs[1];
    const at::Tensor a = bias_activation(mine[0], mine[1], kind);
    const at::Tensor b = kind == Activation::gelu        ? at::gelu(x)
                         : kind == Activation::gelu_tanh ? at::gelu(x, "tanh")
                         : kind == Activation::relu      ? at::relu(x)
                         : kind == Activation::silu      ? at::silu(x)
                         : kind == Activation::tanh      ? at::tanh(x)
                                                         : x.clone();
    a.backward(upstream);
    b.backward(upstream.to(at::kDouble));
    const std::string name = "activation " + std::to_string(static_cast<int>(kind));
    expect_near(a, b, name);
    expect_near(mine[0].grad(), theirs[0].grad(), name + ", input");
    expect_near(mine[1].grad(), theirs[1].grad(), name + ", bias");
  }
}

TEST_P(Rounding, OfFeedForwardLeavesItsFormula) {
  // Sizes that may be in tiles, and sizes that are not.
  for (const auto& [width, inner] : {std::pair{64, 128}, {36, 50}}) {
    const std::vector<at::Tensor> mine = {leaf({70, width}, 1), leaf({inner, width}, 2, 0.2),
                                          leaf({inner}, 3), leaf({width, inner}, 4, 0.2)},
                                  theirs = wide(mine);
    const at::Tensor upstream = leaf({70, width}, 5).detach();
    const at::Tensor a = feed_forward(mine[0], mine[1], mine[2], mine[3], Activation::gelu);
    const at::Tensor b = at::linear(at::gelu(at::linear(theirs[0], theirs[1], theirs[2])), theirs[3]);
    a.backward(upstream);
    b.backward(upstream.to(at::kDouble));
    expect_near(a, b, "output");
    for (size_t i = 0; i < mine.size(); ++i)
      expect_near(mine[i].grad(), theirs[i].grad(), "input " + std::to_string(i));
  }
}

TEST_P(Rounding, OfTheVocabularysCrossEntropyLeavesItsFormula) {
  for (const int64_t rows : {70, 700}) {  // one tile of logits, and two
    const std::vector<at::Tensor> mine = {leaf({rows, 24}, 1), leaf({77, 24}, 2, 0.3), leaf({77}, 3)},
                                  theirs = wide(mine);
    const at::Tensor labels = at::arange(rows, at::TensorOptions(at::kLong).device(place())) * 31 % 77;
    const at::Tensor a = vocabulary_cross_entropy(mine[0], mine[1], mine[2], labels) / rows;
    const at::Tensor b =
        at::cross_entropy_loss(at::linear(theirs[0], theirs[1], theirs[2]), labels, {}, at::Reduction::Mean);
    const double scale = type() == at::kHalf ? 1024 : 1;  // gradients of a mean are below fp16's range
    (a * scale).backward();
    (b * scale).backward();
    expect_near(a, b, "loss");
    for (size_t i = 0; i < mine.size(); ++i)
      expect_near(mine[i].grad(), theirs[i].grad(), "input " + std::to_string(i));
  }
}

INSTANTIATE_TEST_SUITE_P(, Rounding,
                         testing::Combine(testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param) ? "Team" : "Processor") +
                                  c10::toString(std::get<0>(info.param));
                         });

}  // namespace
}  // namespace funicular::nn
