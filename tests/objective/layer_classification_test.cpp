// Claims about the classifiers of layers: what they learn, and what their evaluation tells.
#include "funicular/objective/layer_classification.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <string>
#include <vector>

#include "funicular/model/early_exit.h"
#include "funicular/objective/classification.h"
#include "funicular/objective/exit_curve.h"
#include "funicular/objective/layer_metrics.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective::layer_classification_tests {
namespace {

using Target = LayerClassificationOptions::Target;
constexpr int64_t kLayers = 3;
constexpr int kClasses = 3;

text::WordPiece letters() {
  std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.emplace_back(1, letter);
  return text::WordPiece(vocabulary, {}, {});
}

class LayerClassificationTest : public testing::Test {
 protected:
  LayerClassificationTest() {
    config_.encoder.vocabulary = 31;
    config_.encoder.width = 16;
    config_.encoder.layers = kLayers;
    config_.encoder.heads = 2;
    config_.encoder.feed_forward.width = 24;
    config_.encoder.positions.rows = 32;
    config_.encoder.initializer_range = 0.4;
    config_.encoder.dropouts = {.hidden = 0, .attention = 0};
    config_.num_labels = kClasses;
    for (size_t row = 0; row < 6; ++row) {
      tokens_.emplace_back();
      for (uint32_t i = 0; i < 3 + row; ++i)
        tokens_.back().push_back(5 + (7 * i + static_cast<uint32_t>(row)) % 26);
    }
  }

  LayerClassification exits(Target target, bool own_learns = false) const {
    return {std::make_unique<Classification>(
                tokenizer_, ClassificationOptions{.sequence = {.max_length = 32}, .num_labels = kClasses}),
            {.classifiers = {.prefix = model::kExits,
                             .layers = {1, 2},
                             .dense = true,
                             .reader = model::first_token_reader()},
             .own_classifier = true,
             .target = target,
             .own_learns = own_learns,
             .rows_count = "classification",
             .last_layer = kLayers}};
  }

  MicroBatch batch(const Objective& objective) const {
    std::vector<data::Sample> samples(tokens_.size());
    for (size_t row = 0; row < tokens_.size(); ++row) {
      samples[row].columns.push_back({data::TokenSpan(tokens_[row].data(), tokens_[row].size()), {}});
      samples[row].label = static_cast<double>(row % kClasses);
    }
    return objective.collate(samples, {.seed = 1, .training = true});
  }

  /// The mean loss, after a backward pass.
  double learn(const Model& model, const MicroBatch& batch, TensorMap& outputs) const {
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, batch, {}, sink);
    outputs = sink.outputs();
    const at::Tensor loss = sink.total(batch.counts);
    loss.backward();
    return loss.item<double>();
  }

  text::WordPiece tokenizer_ = letters();
  format::ModelConfig config_;
  std::vector<std::vector<uint32_t>> tokens_;
};

double cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits, labels).item<double>();
}

TEST_F(LayerClassificationTest, TheLossOfLabelsIsTheSumOverTheExits) {
  for (const bool joint : {false, true}) {
    const LayerClassification objective = exits(Target::labels, joint);
    const Model model = objective.build({.config = config_, .dtype = at::kDouble});
    const MicroBatch rows = batch(objective);
    TensorMap outputs;
    const double loss = learn(model, rows, outputs);
    const at::Tensor all = outputs.at("layer_logits"), labels = rows["labels"];
    ASSERT_EQ(all.sizes().vec(), (std::vector<int64_t>{6, kLayers, kClasses}));
    double expected = cross_entropy(all.select(1, 0), labels) + cross_entropy(all.select(1, 1), labels);
    if (joint) expected += cross_entropy(all.select(1, 2), labels);
    EXPECT_NEAR(loss, expected, 1e-12);
    EXPECT_TRUE(at::equal(all.select(1, 2), outputs.at("logits")))
        << "the model's own classifier is the last";
  }
}

TEST_F(LayerClassificationTest, SelfDistillationIsTheDivergenceFromTheModelsOwnAnswers) {
  const LayerClassification objective = exits(Target::own_answers);
  const Model model = objective.build({.config = config_, .dtype = at::kDouble});
  TensorMap outputs;
  const double loss = learn(model, batch(objective), outputs);
  const at::Tensor all = outputs.at("layer_logits");
  const at::Tensor teacher = all.select(1, 2).softmax(1);
  double expected = 0;
  for (const int64_t exit : {0, 1})
    expected += (teacher * (teacher.log() - all.select(1, exit).softmax(1).log())).sum().item<double>() / 6;
  EXPECT_NEAR(loss, expected, 1e-12);
  const at::Tensor own = model.find("classifier.weight")->compute.grad();
  EXPECT_TRUE(!own.defined() || own.abs().max().item<double>() == 0)
      << "the teacher does not learn from its students";
  EXPECT_GT(model.find("exits.1.output.weight")->compute.grad().abs().max().item<double>(), 0);
}

TEST_F(LayerClassificationTest, ProbesReadLayersByTheirNumbers) {
  LayerClassification objective{
      std::make_unique<Classification>(
          tokenizer_, ClassificationOptions{.sequence = {.max_length = 32}, .num_labels = kClasses}),
      {.classifiers = {.prefix = "probes.", .layers = {0, 2, 3}, .reader = model::first_token_reader()},
       .rows_count = "classification",
       .last_layer = kLayers}};
  const Model model = objective.build({.config = config_, .dtype = at::kDouble});
  const MicroBatch rows = batch(objective);
  std::map<std::string, at::Tensor> hidden;
  LossSink sink;
  sink.keep_outputs = true;
  const Taps taps{[&](std::string_view name, const at::Tensor& value) { hidden[std::string(name)] = value; }};
  model.forward({}, rows, taps, sink);
  const at::Tensor all = sink.outputs().at("layer_logits"), first = model::first_tokens(rows);
  const std::vector<std::pair<std::string, std::string>> expected{
      {"0", "embeddings"}, {"2", "layer.1"}, {"3", "layer.2"}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string name = "probes." + expected[i].first + ".output.";
    const at::Tensor logits =
        at::addmm(model.find(name + "bias")->compute, hidden.at(expected[i].second).index_select(0, first),
                  model.find(name + "weight")->compute.t());
    EXPECT_TRUE(at::allclose(all.select(1, static_cast<int64_t>(i)), logits, 1e-10, 1e-12)) << name;
  }
}

/// Three rows, two exits and the last layer. The entropies of the exits are known.
ExitAnswers few_answers() {
  const auto logits_of = [](double p) { return std::log(p / (1 - p)); };
  const std::vector<double> second{logits_of(0.9),  logits_of(0.99), 4, logits_of(0.6), logits_of(0.95), 4,
                                   logits_of(0.55), logits_of(0.6),  -4};
  at::Tensor logits = at::zeros({3, 3, 2}, at::kDouble);
  logits.select(2, 1).copy_(at::tensor(second, at::kDouble).view({3, 3}));
  return {logits, at::tensor({1, 0, 0}, at::kLong), {1, 2, 3}};
}

TEST(ExitCurve, CountsLayersAndRightAnswers) {
  const ExitAnswers answers = few_answers();
  const auto at = [&](double threshold) { return exit_point(answers, {.threshold = threshold}); };
  EXPECT_NEAR(at(0).mean_layers, 3, 1e-12);
  EXPECT_NEAR(at(0).accuracy, 2.0 / 3, 1e-12);  // the last layer is wrong of the second row
  EXPECT_NEAR(at(2).mean_layers, 1, 1e-12);
  EXPECT_NEAR(at(2).accuracy, 1.0 / 3, 1e-12);
  EXPECT_NEAR(at(0.5).mean_layers, (1 + 2 + 3) / 3.0, 1e-12);  // entropies: 0.47 | 0.97, 0.29 | 0.99, 0.97
  EXPECT_NEAR(at(0.5).accuracy, 2.0 / 3, 1e-12);
}

TEST(ExitCurve, ChoosesThresholdsForASpeedAndAnAccuracy) {
  for (const auto kind : {model::ExitRule::Kind::entropy, model::ExitRule::Kind::confidence}) {
    const std::vector<ExitPoint> curve = exit_curve(few_answers(), {.kind = kind});
    EXPECT_NEAR(curve.front().mean_layers, 1, 1e-12);
    EXPECT_NEAR(curve.back().mean_layers, 3, 1e-12);
    for (const ExitPoint& point : curve) {
      const ExitPoint again = exit_point(few_answers(), {.kind = kind, .threshold = point.threshold});
      EXPECT_EQ(again.mean_layers, point.mean_layers);
      EXPECT_EQ(again.accuracy, point.accuracy);
    }
    const auto fast = most_accurate(curve, 2.0), exact = fewest_layers(curve, 0.6);
    ASSERT_TRUE(fast && exact);
    EXPECT_LE(fast->mean_layers, 2.0);
    EXPECT_NEAR(fast->accuracy, 2.0 / 3, 1e-12);
    EXPECT_NEAR(exact->accuracy, 2.0 / 3, 1e-12);
    EXPECT_LT(exact->mean_layers, 3);
    EXPECT_FALSE(fewest_layers(curve, 0.9));
    EXPECT_FALSE(most_accurate(curve, 0.5));
    const std::vector<ExitPoint> read = read_exit_curve(exit_curve_json(curve), "test");
    ASSERT_EQ(read.size(), curve.size());
    EXPECT_EQ(read.back().threshold, curve.back().threshold);
  }
}

TEST(ExitCurve, TheTemperatureMakesTheLabelsMostProbable) {
  at::Tensor logits = at::zeros({100, 2, 2}, at::kDouble);
  // 80 of 100 rows are right at both exits, which claim 0.8 and 0.982: the second one needs a temperature of log(54.6) / log(4).
  logits.select(2, 1).select(1, 0).fill_(std::log(4.0));
  logits.select(2, 1).select(1, 1).fill_(4.0);
  at::Tensor labels = at::ones({100}, at::kLong);
  labels.narrow(0, 0, 20).fill_(0);
  const std::vector<double> found = fit_temperatures({logits, labels, {1, 2}});
  EXPECT_NEAR(found[0], 1, 1e-4);
  EXPECT_NEAR(found[1], 4 / std::log(4.0), 1e-4);
}

TEST(LayerMetrics, GivesEachLayersAccuracyAndKeepsTheCurves) {
  const ExitAnswers answers = few_answers();
  LayerMetrics metrics(nullptr, {1, 2, 3}, {{"layers", {1, 2}}});
  for (int epoch = 0; epoch < 2; ++epoch) {
    metrics.start();
    metrics.add(
        {{"layer_logits", answers.logits.narrow(0, 0, 1)}, {"labels", answers.labels.narrow(0, 0, 1)}});
    metrics.add(
        {{"layer_logits", answers.logits.narrow(0, 1, 2)}, {"labels", answers.labels.narrow(0, 1, 2)}});
    const auto found = metrics.finish(0);
    EXPECT_NEAR(found.at("layer_1_accuracy"), 1.0 / 3, 1e-12);
    EXPECT_NEAR(found.at("layer_3_accuracy"), 2.0 / 3, 1e-12);
    EXPECT_NEAR(found.at(kMeanLayerAccuracy), (1.0 / 3 + 1.0 / 3 + 2.0 / 3) / 3, 1e-12);
  }
  const Json kept = metrics.kept().at(kExitsNote);
  EXPECT_EQ(kept.at("layers"), Json({1, 2}));
  EXPECT_EQ(kept.at("temperatures").size(), 3u);
  EXPECT_GE(kept.at("entropy").size(), 3u);
  EXPECT_GE(kept.at("confidence").size(), 3u);
}

}  // namespace
}  // namespace funicular::objective::layer_classification_tests
