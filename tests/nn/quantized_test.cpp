// Claims about 8-bit products: exact sums of the rounded factors, and close to the real product.
#include "funicular/nn/quantized.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "funicular/base/error.h"
#include "funicular/model/encoder.h"
#include "funicular/nn/functional.h"

namespace funicular::nn {
namespace {

/// The definition in double precision: rows rounded to 127 steps of their largest magnitude.
at::Tensor rounded(const at::Tensor& rows) {
  const at::Tensor values = rows.to(at::kFloat);
  const at::Tensor peak = std::get<0>(values.abs().max(1, true));
  const at::Tensor inverse = torch::where(peak > 0, 127 / peak, torch::zeros_like(peak));
  return torch::round(values * inverse).to(at::kDouble);
}

at::Tensor scales(const at::Tensor& rows) {
  return std::get<0>(rows.to(at::kFloat).abs().max(1, true)).to(at::kDouble) / 127;
}

TEST(QuantizedProducts, AreTheSumsOfTheRoundedFactorsTimesTheirScales) {
  torch::manual_seed(1);
  for (const auto& [tokens, inputs, outputs] : {std::tuple{1, 1, 1},
                                                {2, 3, 5},
                                                {7, 16, 64},
                                                {13, 33, 70},
                                                {97, 130, 129},
                                                {200, 384, 192},
                                                {53, 64, 70}})
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor x = torch::randn({tokens, inputs}).to(type), w = torch::randn({outputs, inputs});
      const at::Tensor y = quantized_linear(x, quantize_weight(w));
      ASSERT_EQ(y.scalar_type(), type);
      const at::Tensor expected = torch::mm(rounded(x), rounded(w).t()) * scales(x) * scales(w).t();
      // The result's rounding, and a few factors within rounding of a half, which may be taken the other way.
      const double unit = type == at::kBFloat16 ? 3e-3 : 2e-3;
      EXPECT_LT((y.to(at::kDouble) - expected).norm().item<double>(), unit * expected.norm().item<double>())
          << tokens << " x " << inputs << " x " << outputs << " " << c10::toString(type);
    }
}

TEST(QuantizedProducts, OfWholeNumbersWithinTheStepsAreExact) {
  torch::manual_seed(2);
  for (const int64_t inputs : {96, 192})  // with AMX: without tiles, and with
    for (const int64_t rows : {16, 40, 101}) {
      at::Tensor x = torch::randint(-127, 128, {rows, inputs}).to(at::kFloat),
                 w = torch::randint(-127, 128, {130, inputs}).to(at::kFloat);
      x.select(1, 5).fill_(127);  // so that every row's step is 1
      w.select(1, 7).fill_(-127);
      EXPECT_TRUE(torch::equal(quantized_linear(x, quantize_weight(w)), torch::mm(x, w.t())));
    }
}

TEST(QuantizedProducts, KeepZerosAndTellWhatIsNotFinite) {
  at::Tensor x = torch::randn({5, 40});
  x[1].zero_();
  x[2][39] = std::numeric_limits<float>::quiet_NaN();
  x[3][0] = std::numeric_limits<float>::infinity();
  const at::Tensor y = quantized_linear(x, quantize_weight(torch::randn({20, 40})));
  EXPECT_TRUE(y[0].isfinite().all().item<bool>());
  EXPECT_TRUE((y[1] == 0).all().item<bool>());
  EXPECT_TRUE(y[2].isnan().all().item<bool>());
  EXPECT_TRUE(y[3].isnan().all().item<bool>());
  EXPECT_TRUE(y[4].isfinite().all().item<bool>());
  EXPECT_THROW(quantize_weight(x), InputError);
}

TEST(QuantizedProducts, RefuseGradientsAndRowsOfAnotherWidth) {
  const at::Tensor weight = quantize_weight(torch::randn({8, 12}));
  EXPECT_THROW(quantized_linear(torch::randn({3, 11}), weight), InputError);
  EXPECT_THROW(nn::linear(torch::randn({3, 12}).set_requires_grad(true), weight), InputError);
  EXPECT_THROW(quantized_linear(torch::randn({3, 12}, at::kDouble), weight), InputError);
}

TEST(QuantizedProducts, OfAFeedForwardAreThoseOfItsParts) {
  torch::manual_seed(5);
  const at::NoGradGuard no_gradient;
  for (const auto& [hidden, inner_size] :
       {std::pair{70, 130}, {128, 192}}) {  // with AMX: without tiles, and with
    const at::Tensor up = quantize_weight(torch::randn({inner_size, hidden})),
                     down = quantize_weight(torch::randn({hidden, inner_size}));
    const at::Tensor bias = torch::randn({inner_size});
    for (const int64_t rows : {0, 1, 96, 97, 205})
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const at::Tensor x = torch::randn({rows, hidden}).to(type);
        const at::Tensor inner = bias_activation(quantized_linear(x, up), bias, Activation::gelu);
        const at::Tensor whole = feed_forward(x, up, bias, down, Activation::gelu);
        EXPECT_EQ(whole.scalar_type(), type);
        EXPECT_TRUE(torch::equal(whole, quantized_linear(inner, down))) << rows;
      }
  }
}

TEST(QuantizedBert, GivesLogitsCloseToThoseOfSinglePrecision) {
  model::ModelOptions options;
  options.config.encoder.vocabulary = 100;
  options.config.encoder.width = 64;
  options.config.encoder.layers = 4;
  options.config.encoder.heads = 4;
  options.config.encoder.feed_forward.width = 256;
  options.config.encoder.initializer_range = 0.1;
  options.config.num_labels = 3;
  options.head = model::Head::classification;
  const Model exact = model::build_model(options);
  Model quantised = model::build_model(options);
  quantize_layers(quantised);
  int64_t matrices = 0;
  for (const auto& parameter : quantised.parameters) matrices += is_quantized(parameter->compute);
  EXPECT_EQ(matrices, 4 * 4);
  const at::NoGradGuard no_gradient;
  std::vector<int64_t> draws{0, 1, 2};
  MicroBatch batch;
  batch.packing = Packing::from_lengths({9, 30, 17}, draws, draws, RandomState{});
  batch.tensors["token_ids"] = (torch::arange(56) * 37 + 5) % 100;
  batch.tensors["token_type_ids"] = torch::zeros({56}, torch::kLong);
  const auto logits = [&](const Model& model) {
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, batch, {}, sink);
    return sink.outputs().at("logits");
  };
  const at::Tensor expected = logits(exact), found = logits(quantised);
  const double distance = (found - expected).norm().item<double>() / expected.norm().item<double>();
  EXPECT_LT(distance, 0.05);
  EXPECT_GT(distance, 1e-5) << "nothing was quantised";
}

}  // namespace
}  // namespace funicular::nn
