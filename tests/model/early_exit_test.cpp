// Claims about rows that leave a model early: each gets the answer of the first classifier that is sure of it, whatever rows lie
// beside it.
#include "funicular/model/early_exit.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <string>
#include <vector>

#include "funicular/model/layer_classifiers.h"

namespace funicular::model::early_exit_tests {
namespace {

constexpr int64_t kLayers = 4, kClasses = 3;

ModelOptions options() {
  ModelOptions made;
  made.config.encoder.vocabulary = 40;
  made.config.encoder.width = 16;
  made.config.encoder.layers = kLayers;
  made.config.encoder.heads = 2;
  made.config.encoder.feed_forward.width = 24;
  made.config.encoder.positions.rows = 32;
  made.config.encoder.initializer_range = 0.4;
  made.config.num_labels = kClasses;
  made.dtype = at::kDouble;
  made.gives.hidden = {1, 2, 3};
  made.head = with_layer_classifiers(
      Head::logits, {.prefix = kExits, .layers = {1, 2, 3}, .dense = true, .reader = first_token_reader()});
  return made;
}

MicroBatch batch_of(const std::vector<int32_t>& lengths) {
  std::vector<int64_t> ids;
  MicroBatch batch;
  std::vector<int64_t> tokens;
  for (size_t s = 0; s < lengths.size(); ++s) {
    ids.push_back(static_cast<int64_t>(s));
    for (int32_t i = 0; i < lengths[s]; ++i) tokens.push_back((7 * lengths[s] + 5 * i) % 40);
  }
  batch.packing = Packing::from_lengths(lengths, ids, ids, {});
  batch.tensors["token_ids"] = at::tensor(tokens, at::kLong);
  batch.tensors["token_type_ids"] = at::zeros({static_cast<int64_t>(tokens.size())}, at::kLong);
  return batch;
}

/// The logits of all classifiers, by a pass in which no row leaves.
std::vector<at::Tensor> all_logits(const Model& model, const MicroBatch& batch) {
  std::vector<at::Tensor> found;
  Activations activations;
  const Taps no_taps;
  LossSink sink;
  const at::NoGradGuard no_gradient;
  for (size_t segment = 0; segment < model.segments.size(); ++segment) {
    model.run_segments(segment, segment + 1, activations, {batch, no_taps, sink, {}});
    const std::string& name = model.segments[segment].name;
    if (name.starts_with(kExits)) found.push_back(activations.at(name + ".logits"));
  }
  found.push_back(activations.at("logits"));
  return found;
}

double entropy_of(const at::Tensor& logits) {
  const at::Tensor p = logits.to(at::kDouble).softmax(0);
  return -(p * p.log()).sum().item<double>() / std::log(static_cast<double>(kClasses));
}

const std::vector<int32_t> kLengths{3, 9, 5, 12, 4, 7, 11, 6, 2, 10};

/// The layer at which a row is to leave.
int64_t layer_of(const std::vector<at::Tensor>& all, int64_t row, double threshold) {
  int64_t layer = 1;
  while (layer < kLayers && entropy_of(all[static_cast<size_t>(layer - 1)][row]) >= threshold) ++layer;
  return layer;
}

TEST(EarlyExit, ARowLeavesAtTheFirstClassifierThatIsSure) {
  const Model model = build_model(options());
  const MicroBatch batch = batch_of(kLengths);
  const std::vector<at::Tensor> all = all_logits(model, batch);
  std::set<int64_t> seen;
  for (const double threshold : {0.3, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9}) {
    const ExitedRows found = run_with_exits(model, batch, {.threshold = threshold});
    for (int64_t row = 0; row < batch.packing.sequences(); ++row) {
      const int64_t layer = layer_of(all, row, threshold);
      EXPECT_EQ(found.layers[static_cast<size_t>(row)], layer) << "row " << row << " at " << threshold;
      const at::Tensor expected = all[static_cast<size_t>(layer - 1)][row].to(at::kFloat);
      EXPECT_TRUE(at::allclose(found.logits[row], expected, 1e-6, 1e-6))
          << "row " << row << " at " << threshold;
      seen.insert(layer);
    }
  }
  EXPECT_EQ(seen, (std::set<int64_t>{1, 2, 3, 4})) << "the rows of the test leave everywhere";
}

TEST(EarlyExit, AnAnswerDoesNotDependOnTheRowsBeside) {
  const Model model = build_model(options());
  const ExitRule rule{.threshold = 0.7};
  const ExitedRows together = run_with_exits(model, batch_of(kLengths), rule);
  for (size_t row = 0; row < kLengths.size(); ++row) {
    const ExitedRows alone = run_with_exits(model, batch_of({kLengths[row]}), rule);
    EXPECT_EQ(alone.layers.front(), together.layers[row]);
    EXPECT_TRUE(at::allclose(alone.logits[0], together.logits[static_cast<int64_t>(row)], 1e-6, 1e-6));
  }
}

TEST(EarlyExit, TheBatchShrinksAsRowsLeave) {
  const Model whole = build_model(options());
  Model model = build_model(options());
  std::vector<int64_t> tokens;  // that each layer has computed
  for (Segment& segment : model.segments)
    if (segment.name.starts_with("layer."))
      segment.forward = [&tokens, own = segment.forward](Activations in, const Pass& pass) {
        tokens.push_back(in.at("hidden").size(0));
        EXPECT_EQ(pass.batch.packing.tokens(), tokens.back());
        return own(std::move(in), pass);
      };
  constexpr double kThreshold = 0.75;
  run_with_exits(model, batch_of(kLengths), {.threshold = kThreshold});
  const std::vector<at::Tensor> all = all_logits(whole, batch_of(kLengths));
  std::vector<int64_t> expected(kLayers);
  for (size_t row = 0; row < kLengths.size(); ++row)
    for (int64_t layer = 0; layer < layer_of(all, static_cast<int64_t>(row), kThreshold); ++layer)
      expected[static_cast<size_t>(layer)] += kLengths[row];
  while (expected.back() == 0) expected.pop_back();
  EXPECT_EQ(tokens, expected);
  EXPECT_LT(expected.back(), expected.front()) << "the rows of the test do not leave together";
  tokens.clear();
  EXPECT_EQ(run_with_exits(model, batch_of(kLengths), {.threshold = 2}).layers,
            std::vector<int64_t>(kLengths.size(), 1));
  EXPECT_EQ(tokens.size(), 1u) << "no layer runs behind the last row";
}

TEST(EarlyExit, EntropyIsNormalisedAndConfidenceIsCalibrated) {
  const ExitRule entropy;
  const std::vector<float> uniform(kClasses, 1.0f / kClasses), sure{1, 0, 0};
  EXPECT_NEAR(entropy.score(uniform, 0), 1, 1e-6);
  EXPECT_EQ(entropy.score(sure, 0), 0);
  const ExitRule confidence{.kind = ExitRule::Kind::confidence, .threshold = 0.5, .temperatures = {1, 2.5}};
  const at::Tensor logits = at::tensor({1.5, -0.5, 0.25}, at::kDouble);
  const at::Tensor p = logits.softmax(0).to(at::kFloat).contiguous();
  const std::span<const float> probabilities(p.const_data_ptr<float>(), kClasses);
  for (const size_t exit : {size_t{0}, size_t{1}})
    EXPECT_NEAR(confidence.score(probabilities, exit),
                (logits / confidence.temperatures[exit]).softmax(0).max().item<double>(), 1e-6);
  EXPECT_TRUE(confidence.leaves(0.5));
  EXPECT_FALSE(confidence.leaves(0.499));
  EXPECT_FALSE(ExitRule{.threshold = 0.5}.leaves(0.5));
}

TEST(LayerClassifiers, ComeBackFromTheirFile) {
  const std::string file = testing::TempDir() + "exits.safetensors";
  ModelOptions one = options(), two = options();
  two.seed = 7;
  const Model from = build_model(one);
  Model to = build_model(two);
  save_layer_classifiers(from, kExits, file);
  load_layer_classifiers(to, kExits, file);
  for (const auto& parameter : from.parameters) {
    const bool exit = parameter->name.starts_with(kExits);
    const at::Tensor own = to.find(parameter->name)->master.to(at::kFloat);
    const bool random =
        parameter->name.ends_with(".weight") && parameter->name.find("LayerNorm") == std::string::npos;
    if (random) {
      EXPECT_EQ(at::equal(own, parameter->master.to(at::kFloat)), exit) << parameter->name;
    }
    EXPECT_NE(parameter->exported, exit) << "transformers would find weights that its class has not";
  }
}

TEST(LayerClassifiers, TheMeanIsOfTheTokensOfEachSequence) {
  const MicroBatch batch = batch_of({2, 3});
  const at::Tensor hidden = at::arange(10, at::kDouble).view({5, 2});
  EXPECT_TRUE(at::allclose(mean_reader().read(hidden, batch),
                           at::tensor({1.0, 2.0, 6.0, 7.0}).view({2, 2}).to(at::kDouble)));
  EXPECT_TRUE(
      at::equal(first_token_reader().read(hidden, batch), hidden.index_select(0, at::tensor({0, 2}))));
}

}  // namespace
}  // namespace funicular::model::early_exit_tests
