// Claims about losses on data that is not trained on.
#include "funicular/train/evaluation.h"

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "funicular/bench/generated_text.h"
#include "funicular/core/wrap_module.h"
#include "funicular/objective/masked_lm.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

struct TwoLayersImpl : torch::nn::Module {
  torch::nn::Linear first{6, 8}, second{8, 6};
  TwoLayersImpl() {
    register_module("first", first);
    register_module("second", second);
  }
};
TORCH_MODULE(TwoLayers);

TEST(Evaluate, TheLossIsTheSumOfItsTerms) {
  const TensorDataset data = make_data(23);
  const auto squared = [](TwoLayersImpl& net, const MicroBatch& batch, LossSink& sink) {
    sink.add("squared_error", (net.second(torch::tanh(net.first(batch["x"]))) - batch["y"]).square().sum());
  };
  const auto absolute = [](TwoLayersImpl& net, const MicroBatch& batch, LossSink& sink) {
    sink.add("absolute", net.first(batch["x"]).abs().sum());
  };
  const auto both = [&](TwoLayersImpl& net, const MicroBatch& batch, LossSink& sink) {
    squared(net, batch, sink);
    absolute(net, batch, sink);
  };
  TwoLayers net;
  const double first = evaluate(wrap_module(net, squared), data, nullptr, 5).at("loss"),
               second = evaluate(wrap_module(net, absolute), data, nullptr, 5).at("loss");
  EXPECT_NEAR(evaluate(wrap_module(net, both), data, nullptr, 5).at("loss"), first + second, 1e-5);
}

TEST(Evaluate, DropsNoUnits) {
  bench::GeneratedText rows({.longest = 40, .batch_size = 9, .vocabulary = 97}, 1);
  const text::WordPiece tokenizer = bench::generated_tokenizer(97);
  objective::MaskedLmOptions masking;
  masking.sequence.max_length = 40;
  const objective::MaskedLm objective(tokenizer, masking);
  const DatasetSource<objective::Objective> source(objective, rows);
  const auto loss = [&](double dropout) {
    format::ModelConfig config;
    config.encoder.vocabulary = 97;
    config.encoder.width = 16;
    config.encoder.layers = 1;
    config.encoder.heads = 2;
    config.encoder.feed_forward.width = 24;
    config.encoder.positions.rows = 40;
    config.encoder.initializer_range = 0.5;
    config.encoder.dropouts.hidden = config.encoder.dropouts.attention = dropout;
    return evaluate(objective.build({.config = config, .seed = 5}), source, nullptr, 4).at("loss");
  };
  EXPECT_EQ(loss(0.5), loss(0));
}

}  // namespace
}  // namespace funicular::train
