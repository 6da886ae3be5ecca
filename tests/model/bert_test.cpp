// What the last layer leaves out: nothing that anyone reads.

#include "funicular/model/encoder.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "funicular/model/weights.h"
#include "funicular/nn/quantized.h"
#include "funicular/parallel/holding/holding.h"
#include "tests/team_kernels.h"

namespace funicular::model {
namespace {

ModelOptions options_of(Head head, at::Device place = at::kCPU) {
  ModelOptions options;
  options.config.encoder.vocabulary = 90;
  options.config.encoder.width = 24;
  options.config.encoder.layers = 2;
  options.config.encoder.heads = 3;
  options.config.encoder.feed_forward.width = 40;
  options.config.encoder.positions.rows = 80;
  options.config.num_labels = 3;
  options.config.encoder.initializer_range = 0.2;
  options.head = head;
  options.dtype = at::kDouble;
  options.device = place;
  return options;
}

MicroBatch batch_of(const std::vector<int64_t>& masked) {
  const std::vector<int32_t> lengths = {9, 1, 70, 5};
  const std::vector<int64_t> draws = {4, 5, 6, 7};
  MicroBatch batch;
  batch.packing = Packing::from_lengths(lengths, draws, draws, {.seed = 7, .training = true});
  const int64_t tokens = batch.packing.tokens();
  batch.tensors["token_ids"] = (torch::arange(tokens) * 37 + 5) % 90;
  batch.tensors["token_type_ids"] = torch::arange(tokens) % 2;
  batch.tensors["mlm_rows"] = torch::tensor(masked, torch::kLong);
  batch.tensors["mlm_labels"] = batch["mlm_rows"] % 90;
  batch.tensors["labels"] = torch::arange(batch.packing.sequences()) % 3;
  batch.counts = {{"mlm", 10}, {"classification", 4}};
  return batch;
}

struct Step {
  at::Tensor loss;
  std::map<std::string, at::Tensor> gradients;
  at::Tensor head_input;
  int64_t rows = 0;  ///< that an observer saw of the last layer; 0: there was none
};

Step step(Head head, const MicroBatch& batch, bool observed, at::Device place = at::kCPU) {
  Model model = build_model(options_of(head, place));
  Taps taps;
  Step result;
  if (observed)
    taps.observe = [&](std::string_view name, const at::Tensor& value) {
      if (name.starts_with("layer.")) result.rows = value.size(0);
    };
  LossSink sink;
  Activations activations;
  const size_t last = model.segments.size() - 1;
  model.run_segments(0, last, activations, {batch, taps, sink});
  result.head_input = activations.at("hidden");
  model.run_segments(last, last + 1, activations, {batch, taps, sink});
  result.loss = sink.total(batch.counts);
  result.loss.backward();
  for (const auto& parameter : model.parameters) {
    const at::Tensor& gradient = parameter->compute.grad();
    result.gradients[parameter->name] = gradient.defined() ? gradient : at::zeros_like(parameter->compute);
  }
  return result;
}

void expect_same(Head head, const MicroBatch& batch, int64_t rows) {
  const Step some = step(head, batch, false), all = step(head, batch, true);
  EXPECT_EQ(all.rows, batch.packing.tokens());
  EXPECT_EQ(some.head_input.size(0), rows);
  EXPECT_TRUE(at::allclose(some.head_input, all.head_input, 1e-12, 1e-14));
  EXPECT_NEAR(some.loss.item<double>(), all.loss.item<double>(), 1e-12);
  for (const auto& [name, gradient] : all.gradients)
    EXPECT_TRUE(at::allclose(some.gradients.at(name), gradient, 1e-9, 1e-13)) << name;
}

TEST(Bert, LastLayerLeavesOutWhatTheMaskedLmHeadDoesNotRead) {
  const MicroBatch batch = batch_of({0, 3, 8, 10, 44, 79, 81, 84});
  expect_same(Head::masked_lm, batch, 8);
}

TEST(Bert, LastLayerLeavesOutWhatTheClassificationHeadDoesNotRead) {
  expect_same(Head::classification, batch_of({}), 4);
}

/// The masked-LM head's decoder is the same table, and has made a dense gradient before.
TEST(Bert, WordsHaveGradientsOfRowsWhereNothingElseHasMadeOne) {
  const MicroBatch batch = batch_of({0, 3, 8, 10, 44, 79, 81, 84});
  for (const Head head : {Head::masked_lm, Head::classification}) {
    const Step dense = step(head, batch, false);
    Model model = build_model(options_of(head));
    LossSink sink;
    model.forward({}, batch, {}, sink, {.row_gradients = true});
    sink.total(batch.counts).backward();
    for (const auto& parameter : model.parameters) {
      const at::Tensor& gradient = parameter->compute.grad();
      if (!gradient.defined()) continue;
      const bool words = parameter->name == "bert.embeddings.word_embeddings.weight";
      EXPECT_EQ(gradient.is_sparse(), words && head == Head::classification) << parameter->name;
      EXPECT_TRUE(torch::equal(gradient.is_sparse() ? gradient.to_dense() : gradient,
                               dense.gradients.at(parameter->name)))
          << parameter->name;
    }
  }
}

/// The kernels for GPUs, a few threads being the team.
TEST(Bert, TeamsOfThreadsGiveTheSameGradients) {
  for (const Head head : {Head::masked_lm, Head::classification})
    for (const bool observed : {false, true}) {
      const MicroBatch batch = batch_of({0, 3, 8, 10, 44, 79, 81, 84});
      const Step processor = step(head, batch, observed);
      const TeamKernels kernels;
      const Step team = step(head, batch.to(kernels.place()), observed, kernels.place());
      EXPECT_NEAR(team.loss.item<double>(), processor.loss.item<double>(), 1e-12);
      for (const auto& [name, gradient] : processor.gradients)
        EXPECT_TRUE(at::allclose(team.gradients.at(name).cpu(), gradient, 1e-9, 1e-13)) << name;
    }
}

at::Tensor logits_of(const Model& model, const MicroBatch& batch, bool observed) {
  const at::NoGradGuard no_gradient;
  Taps taps;
  if (observed) taps.observe = [](std::string_view, const at::Tensor&) {};
  LossSink sink;
  sink.keep_outputs = true;
  model.forward({}, batch, taps, sink);
  return sink.outputs().at("logits");
}

TEST(Bert, LastLayerLeavesOutTheSameIn16And8Bits) {
  ModelOptions options = options_of(Head::classification);
  options.dtype = at::kFloat;
  Model narrow = build_model(options), quantised = build_model(options);
  const parallel::Holding flat(narrow, {at::kBFloat16, at::kBFloat16});
  nn::quantize_layers(quantised);
  for (const Model* const model : {&narrow, &quantised}) {
    const at::Tensor some = logits_of(*model, batch_of({}), false),
                     all = logits_of(*model, batch_of({}), true);
    // No row of a product of ours sees another; LibTorch's, on processors without, may round otherwise.
    EXPECT_TRUE(at::allclose(some, all, 2e-2, 2e-2)) << some << all;
    EXPECT_GT(all.abs().max().item<double>(), 0.01);
  }
}

TEST(Bert, LearnsNothingFromABatchOfWhichNothingIsPredicted) {
  MicroBatch batch = batch_of({});
  for (const bool observed : {false, true}) {
    const Step found = step(Head::masked_lm, batch, observed);
    EXPECT_EQ(found.loss.item<double>(), 0);
    for (const auto& [name, gradient] : found.gradients) EXPECT_FALSE(gradient.any().item<bool>()) << name;
  }
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Bert, TheWeightsAreCountedBeforeTheyAreMade) {
  for (const Head head : {Head::masked_lm, Head::classification}) {
    const ModelOptions options = options_of(head);
    EXPECT_EQ(count_parameters(options.config, head), build_model(options).parameter_count());
  }
}

TEST(Bert, AModelThatNoMemoryHoldsIsRefusedBeforeItIsMade) {
  ModelOptions options = options_of(Head::masked_lm);
  options.config.encoder.vocabulary = format::EncoderLimits::vocabulary;
  options.config.encoder.width = format::EncoderLimits::width;
  options.config.encoder.heads = 1;
  options.config.encoder.feed_forward.width = format::EncoderLimits::feed_forward;
  options.config.encoder.layers = format::EncoderLimits::layers;
  const std::string message = refusal([&] { build_model(options); });  // 43 TiB
  EXPECT_NE(message.find("a model of 5.77e+12 weights (vocab_size 16777216, hidden_size 16384"), message.npos)
      << message;
  EXPECT_NE(message.find("They take 43012.3 GiB"), message.npos) << message;
  EXPECT_NE(message.find("GiB of memory"), message.npos) << message;
}

TEST(Bert, AConfigurationThatIsNotThatOfTheWeightsIsRefusedByItsSizes) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-sizes-test-" + std::to_string(::getpid()));
  const ModelOptions options = options_of(Head::masked_lm);
  save_pretrained(build_model(options), options.config, Head::masked_lm, folder);
  EXPECT_NO_THROW(check_sizes(options.config, folder));
  using Encoder = format::EncoderSpec;
  using Field = int64_t& (*)(Encoder&);
  const auto with = [&](Field field, int64_t value) {
    format::ModelConfig config = options.config;
    field(config.encoder) = value;
    return refusal([&] { check_sizes(config, folder); });
  };
  const Field layers = [](Encoder& e) -> int64_t& { return e.layers; };
  EXPECT_EQ(with(layers, 1), "") << "the first layers of a model are a model";
  for (const auto& [field, value, words] : std::vector<std::tuple<Field, int64_t, const char*>>{
           {layers, 1000, "says 1000 layers (\"num_hidden_layers\")"},
           {layers, 3, "model.safetensors has 2;"},
           {[](Encoder& e) -> int64_t& { return e.vocabulary; }, 91, "says \"vocab_size\" 91"},
           {[](Encoder& e) -> int64_t& { return e.width; }, 48, "says \"hidden_size\" 48"},
           {[](Encoder& e) -> int64_t& { return e.feed_forward.width; }, 41, "says \"intermediate_size\" 41"},
           {[](Encoder& e) -> int64_t& { return e.positions.rows; }, 79,
            "has 80 (bert.embeddings.position_embeddings.weight"},
           {[](Encoder& e) -> int64_t& { return e.token_types; }, 1, "says \"type_vocab_size\" 1"}}) {
    const std::string message = with(field, value);
    EXPECT_NE(message.find(words), message.npos) << message;
    EXPECT_NE(message.find("config.json says"), message.npos) << message;
  }
  fs::remove_all(folder);
}

TEST(Bert, RandomNumbersAreDrawnOnlyForWhatWillNotBeLoaded) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-bert-test-" + std::to_string(::getpid()));
  ModelOptions options = options_of(Head::masked_lm);
  options.seed = 1;
  save_pretrained(build_model(options), options.config, Head::masked_lm, folder);

  options = options_of(Head::classification);
  Model all_random = build_model(options), loaded = build_model(options);
  load_pretrained(loaded, folder);
  options.loaded = weights_in(folder);
  // LibTorch then fills with NaN what nobody fills; else such memory may hold the very numbers that were drawn before.
  struct FillsWithNan {
    FillsWithNan() { at::globalContext().setDeterministicAlgorithms(true, false); }
    ~FillsWithNan() { at::globalContext().setDeterministicAlgorithms(false, false); }
  };
  Model spared = [&] {
    const FillsWithNan fills;
    return build_model(options);
  }();
  std::set<std::string> random;
  for (size_t i = 0; i < spared.parameters.size(); ++i)
    if (spared.parameters[i]->master.dim() == 2 &&
        at::equal(spared.parameters[i]->master, all_random.parameters[i]->master))
      random.insert(spared.parameters[i]->name);
  EXPECT_EQ(random, (std::set<std::string>{"bert.pooler.dense.weight", "classifier.weight"}));
  load_pretrained(spared, folder);
  for (size_t i = 0; i < spared.parameters.size(); ++i)
    EXPECT_TRUE(at::equal(spared.parameters[i]->master, loaded.parameters[i]->master))
        << spared.parameters[i]->name;
  // What is to be made anew is drawn, whether the file has it or not.
  EXPECT_TRUE(options.loaded("encoder.layer.0.output.dense.weight"));
  EXPECT_FALSE(weights_in(folder, "encoder.")("bert.encoder.layer.0.output.dense.weight"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace funicular::model
