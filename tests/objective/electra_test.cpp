// Claims about replaced token detection: what is drawn, what the discriminator reads, and what learns from
// what.
#include "funicular/objective/electra.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/bench/generated_text.h"
#include "funicular/core/recompute.h"
#include "funicular/format/safetensors.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/replaced_tokens.h"
#include "funicular/model/weights.h"
#include "funicular/train/source.h"
#include "views.h"

namespace funicular::objective {
namespace {

constexpr int64_t kVocabulary = 211;

format::ModelConfig small_config() {
  format::ModelConfig config = format::default_config("electra");
  config.encoder.vocabulary = kVocabulary;
  config.encoder.embedding_size = 20;
  config.encoder.width = 32;
  config.encoder.layers = 2;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 64;
  config.encoder.positions.rows = 64;
  return config;
}

class ElectraTest : public ::testing::Test {
 protected:
  Electra objective(ElectraOptions options = {}) const {
    MaskedLmOptions masking;
    masking.sequence.max_length = 40;
    return {tokenizer_, masking, options};
  }
  MicroBatch batch_of(const std::vector<data::Draw>& draws, bool training = false, uint64_t seed = 5) const {
    const Electra electra = objective();
    const train::DatasetSource source(electra, rows_);
    return source.collate(draws, {.seed = seed, .training = training});
  }
  MicroBatch whole(bool training = false) const {
    std::vector<data::Draw> draws;
    for (int64_t i = 0; i < 24; ++i) draws.push_back({i, i});
    return batch_of(draws, training);
  }
  Model build(double initializer_range = 0.2, ElectraOptions options = {}) const {
    format::ModelConfig config = small_config();
    config.encoder.initializer_range = initializer_range;
    return objective(options).build({.config = config, .dtype = at::kDouble, .seed = 3});
  }

  text::WordPiece tokenizer_ = bench::generated_tokenizer(kVocabulary);
  bench::GeneratedText rows_{{.longest = 40, .batch_size = 24, .vocabulary = kVocabulary}, 1};
};

/// What the discriminator read and had to tell: by a segment that stands before it.
TensorMap read_by_discriminator(Model& model, const MicroBatch& batch) {
  TensorMap read;
  const std::vector<Port> ports{{"token_ids"}, {"token_type_ids"}, {"replaced"}};
  size_t place = 0;
  while (model.segments[place].name != "embeddings") ++place;
  model.segments.insert(model.segments.begin() + static_cast<ptrdiff_t>(place),
                        {"look", {}, ports, {}, [&](Activations in, const Pass&) {
                           read = in;
                           return Activations{};
                         }});
  LossSink sink;
  const at::NoGradGuard no_gradient;
  model.forward({}, batch, {}, sink);
  model.segments.erase(model.segments.begin() + static_cast<ptrdiff_t>(place));
  return read;
}

TEST(ElectraSizes, AreThePublishedOnes) {
  format::ModelConfig small = format::default_config("electra");
  const format::ModelConfig generator = generator_config(small, 0.25);
  EXPECT_EQ(generator.encoder.width, 64);
  EXPECT_EQ(generator.encoder.heads, 1);
  EXPECT_EQ(generator.encoder.feed_forward.width, 256);
  EXPECT_EQ(generator.encoder.layers, 12);
  EXPECT_EQ(generator.encoder.embedding_width(), 128);
  EXPECT_EQ(model::count_parameters(generator, model::Head::masked_lm), 4'620'026);
  const auto all = [](const std::string&) { return true; };  // random numbers take their time
  const Model both = join_electra({.config = small, .loaded = all}, {.config = generator, .loaded = all});
  EXPECT_EQ(both.parameter_count(), 14'196'219);
  int64_t of_generator = 0;
  for (const auto& parameter : both.parameters)
    if (parameter->name.starts_with(kGenerator)) of_generator += parameter->master.numel();
  EXPECT_EQ(4'620'026 - of_generator, 3'972'864) << "what both have in common";
  EXPECT_EQ(both.parameter_count() - of_generator, 13'549'057);
  format::ModelConfig base = small;
  base.encoder.embedding_size = base.encoder.width = 768;
  base.encoder.heads = 12;
  EXPECT_EQ(generator_config(base, 1.0 / 3).encoder.width, 256);
  EXPECT_EQ(generator_config(base, 1.0 / 3).encoder.heads, 4);
  EXPECT_EQ(generator_config(base, 1.0 / 3).encoder.embedding_width(), 768);
}

TEST_F(ElectraTest, OfTheChosenTokensMostAreMaskedAndTheOthersShownAsTheyAre) {
  int64_t chosen = 0, masked = 0, tokens = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<data::Draw> draws;
    for (int64_t i = 0; i < 24; ++i) draws.push_back({i, i});
    const MicroBatch batch = batch_of(draws, false, seed);
    const at::Tensor shown = batch["token_ids"].index_select(0, batch["mlm_rows"]);
    const at::Tensor is_mask = shown.eq(tokenizer_.special().mask);
    EXPECT_TRUE(at::equal(shown.masked_select(is_mask.logical_not()),
                          batch["mlm_labels"].masked_select(is_mask.logical_not())))
        << "no random tokens";
    chosen += shown.numel();
    masked += is_mask.sum().item<int64_t>();
    tokens += batch.packing.tokens() - 2 * batch.packing.sequences();
    EXPECT_EQ(batch.counts.at("replaced"), static_cast<double>(batch.packing.tokens()));
    EXPECT_EQ(batch.counts.at("mlm"), static_cast<double>(shown.numel()));
  }
  EXPECT_NEAR(static_cast<double>(chosen) / static_cast<double>(tokens), 0.15, 0.01);
  expect_shares("[MASK] and the same, ELECTRA",
                {static_cast<double>(masked), static_cast<double>(chosen - masked)}, {0.85, 0.15});
}

TEST_F(ElectraTest, UniformNumbersAreKeyedByDrawAndPositionNotByTheBatch) {
  const MicroBatch together = whole();
  std::vector<int64_t> apart;
  for (int64_t i = 0; i < 24; ++i) {
    const at::Tensor own = batch_of({{i, i}})["sampling_bits"];
    apart.insert(apart.end(), own.data_ptr<int64_t>(), own.data_ptr<int64_t>() + own.numel());
  }
  EXPECT_TRUE(at::equal(together["sampling_bits"], torch::tensor(apart, torch::kLong)));
  EXPECT_EQ(std::set<int64_t>(apart.begin(), apart.end()).size(), apart.size());
  const at::Tensor once = batch_of({{3, 3}})["sampling_bits"], again = batch_of({{3, 27}})["sampling_bits"];
  EXPECT_FALSE(once.sizes() == again.sizes() && at::equal(once, again)) << "the same row met once more";
  EXPECT_FALSE(at::equal(once, batch_of({{3, 3}}, false, 6)["sampling_bits"]));
}

TEST_F(ElectraTest, TheDiscriminatorReadsDrawnTokensInTheirPlacesAndIsToldWhichDiffer) {
  Model model = build();
  const MicroBatch batch = whole();
  const TensorMap read = read_by_discriminator(model, batch);
  const at::Tensor &rows = batch["mlm_rows"], &labels = batch["mlm_labels"];
  const at::Tensor original = batch["token_ids"].index_copy(0, rows, labels);
  EXPECT_FALSE(read.at("token_ids").eq(tokenizer_.special().mask).any().item<bool>() &&
               original.ne(read.at("token_ids")).sum().item<int64_t>() == 0);
  EXPECT_TRUE(at::equal(read.at("replaced"), read.at("token_ids").ne(original).to(at::kLong)));
  EXPECT_TRUE(at::equal(read.at("token_type_ids"), batch["token_type_ids"]));
  const int64_t replaced = read.at("replaced").sum().item<int64_t>();
  EXPECT_GT(replaced, rows.numel() / 2) << "of some two hundred words";
  EXPECT_LE(replaced, rows.numel());
  EXPECT_GT(std::get<0>(at::_unique(read.at("token_ids").index_select(0, rows))).numel(), 10);
}

TEST_F(ElectraTest, ADrawnTokenThatIsTheRightOneIsNotReplaced) {
  Model model = build();
  int64_t right = 0;
  for (int64_t epoch = 0; epoch < 30 && right == 0; ++epoch) {
    std::vector<data::Draw> draws;
    for (int64_t i = 0; i < 24; ++i) draws.push_back({i, 24 * epoch + i});
    const MicroBatch batch = batch_of(draws);
    const TensorMap read = read_by_discriminator(model, batch);
    const at::Tensor& rows = batch["mlm_rows"];
    const at::Tensor same = read.at("token_ids").index_select(0, rows).eq(batch["mlm_labels"]);
    right += same.sum().item<int64_t>();
    EXPECT_TRUE(at::equal(read.at("replaced").index_select(0, rows).eq(0), same));
  }
  EXPECT_GT(right, 0) << "of some two hundred words one is drawn now and then";
}

TEST_F(ElectraTest, WhatIsDrawnDoesNotDependOnHowABatchIsCut) {
  Model model = build();
  const TensorMap together = read_by_discriminator(model, whole());
  std::vector<at::Tensor> ids;
  for (int64_t i = 0; i < 24; i += 3)
    ids.push_back(
        read_by_discriminator(model, batch_of({{i, i}, {i + 1, i + 1}, {i + 2, i + 2}})).at("token_ids"));
  EXPECT_TRUE(at::equal(at::cat(ids), together.at("token_ids")));
}

std::map<std::string, at::Tensor> gradients(const Model& model, const MicroBatch& batch,
                                            Recompute recompute = Recompute::none) {
  for (const auto& parameter : model.parameters) parameter->compute.mutable_grad().reset();
  LossSink sink;
  forward_recomputed(model, recompute, {}, batch, {}, sink);
  sink.total(batch.counts).backward();
  std::map<std::string, at::Tensor> all;
  for (const auto& parameter : model.parameters)
    all[parameter->name] = parameter->compute.grad().defined() ? parameter->compute.grad().clone()
                                                               : at::zeros_like(parameter->compute);
  return all;
}

TEST_F(ElectraTest, NoGradientOfTheDiscriminatorReachesTheGeneratorsOwnWeights) {
  const MicroBatch batch = whole(/*training=*/true);
  const auto both = gradients(build(), batch), guessing = gradients(build(0.2, {.weight = 0}), batch);
  int64_t own = 0;
  for (const auto& [name, gradient] : both) {
    const bool generators = name.starts_with(kGenerator);
    own += generators;
    EXPECT_EQ(at::equal(gradient, guessing.at(name)), generators) << name;
  }
  EXPECT_GT(own, 20);
  EXPECT_GT(guessing.at("electra.embeddings.word_embeddings.weight").abs().sum().item<double>(), 0)
      << "the tables are both's";
  EXPECT_EQ(guessing.at("discriminator_predictions.dense.weight").abs().sum().item<double>(), 0);
}

TEST_F(ElectraTest, TheGeneratorsOwnWeightsAreNotTheDiscriminators) {
  const Model model = build(0.2, {.generator_size = 1});  // of the same shapes
  for (const auto& parameter : model.parameters) {
    if (!parameter->name.starts_with(kGenerator) || parameter->master.dim() != 2) continue;
    const Parameter* const other = model.find(parameter->name.substr(std::string(kGenerator).size()));
    if (!other || other->master.sizes() != parameter->master.sizes()) continue;
    EXPECT_FALSE(at::equal(other->master, parameter->master)) << parameter->name;
  }
}

TEST_F(ElectraTest, RecomputationGivesTheSameBits) {
  const MicroBatch batch = whole(/*training=*/true);
  const auto kept = gradients(build(), batch);
  for (const Recompute recompute : {Recompute::full, Recompute::sqrt, Recompute::selective})
    for (const auto& [name, gradient] : gradients(build(), batch, recompute))
      EXPECT_TRUE(at::equal(gradient, kept.at(name))) << recompute_name(recompute) << " " << name;
}

TEST_F(ElectraTest, LossAtTheStartIsThatOfGuessing) {
  const Model model = build(/*initializer_range=*/1e-3);
  const MicroBatch batch = whole();
  LossSink sink;
  model.forward({}, batch, {}, sink);
  EXPECT_NEAR(sink.total(batch.counts).item<double>(), std::log(kVocabulary) + 50 * std::numbers::ln2, 0.01);
}

TEST_F(ElectraTest, MetricsAreSharesOfTokens) {
  const auto metrics = objective().metrics();
  metrics->start();
  metrics->losses({{"mlm", std::log(7)}, {"replaced", 1}});
  // Guessed 2 of 3, then 0 of 1; told of 3 that they were replaced, which 2 of 4 replaced ones were.
  metrics->add({{"mlm_best", torch::tensor({5, 6, 7})},
                {"mlm_labels", torch::tensor({5, 6, 8})},
                {"replaced_logits", torch::tensor({1.0, -1.0, 2.0, -3.0, -0.5})},
                {"replaced", torch::tensor({1, 1, 0, 0, 1})}});
  metrics->add({{"mlm_best", torch::tensor({4})},
                {"mlm_labels", torch::tensor({9})},
                {"replaced_logits", torch::tensor({0.1, -0.1, -2.0})},
                {"replaced", torch::tensor({1, 0, 0})}});
  const std::map<std::string, double> found = metrics->finish(0);
  EXPECT_NEAR(found.at("perplexity"), 7, 1e-12);
  EXPECT_DOUBLE_EQ(found.at("generator_accuracy"), 0.5);
  EXPECT_DOUBLE_EQ(found.at("discriminator_accuracy"), 5.0 / 8);
  EXPECT_DOUBLE_EQ(found.at("replaced_precision"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(found.at("replaced_recall"), 0.5);
  metrics->start();
  metrics->losses({{"mlm", 0}, {"replaced", 0}});
  EXPECT_EQ(metrics->finish(0).at("replaced_recall"), 0) << "nothing was replaced";
}

TEST_F(ElectraTest, AnEvaluationGetsWhatItsMetricsRead) {
  const Model model = build();
  const MicroBatch batch = whole();
  LossSink sink;
  sink.keep_outputs = true;
  const at::NoGradGuard no_gradient;
  model.forward({}, batch, {}, sink);
  EXPECT_EQ(sink.outputs().at("mlm_best").sizes(), batch["mlm_labels"].sizes());
  EXPECT_EQ(sink.outputs().at("replaced_logits").numel(), batch.packing.tokens());
  EXPECT_EQ(sink.terms().size(), 2u);
  EXPECT_EQ(sink.terms()[0].weight, 1);
  EXPECT_EQ(sink.terms()[1].weight, 50);
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  const format::SafetensorsFile file(folder / "model.safetensors");
  for (const auto& entry : file.entries()) names.insert(entry.name);
  return names;
}

TEST_F(ElectraTest, TheDiscriminatorIsSavedAndTheGeneratorWhereItIsToBeKept) {
  const fs::path folder =
      fs::temp_directory_path() / ("funicular-electra-test-" + std::to_string(::getpid()));
  const Model model = build();
  for (const bool keeps : {false, true}) {
    const Electra electra = objective({.keep_generator = keeps});
    model::save_pretrained(model, small_config(), electra.head(), folder);
    electra.save_more(model, small_config(), tokenizer_, folder);
    const std::set<std::string> names = names_in(folder);
    EXPECT_TRUE(names.contains("discriminator_predictions.dense_prediction.weight"));
    for (const std::string& name : names) EXPECT_FALSE(name.starts_with(kGenerator)) << name;
    EXPECT_EQ(fs::exists(folder / "generator"), keeps);
    if (!keeps) continue;
    const format::ModelConfig config = format::read_model_config(folder / "generator");
    EXPECT_EQ(config.architectures, std::vector<std::string>{"ElectraForMaskedLM"});
    Model generator = model::build_model({.config = config, .head = model::Head::masked_lm});
    const model::LoadReport report = model::load_pretrained(generator, folder / "generator");
    EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
    EXPECT_TRUE(fs::exists(folder / "generator" / "tokenizer.json"));
  }
  fs::remove_all(folder);
}

TEST_F(ElectraTest, ABertWhoseHeadHasAnotherActivationThanAGeneratorsIsWarnedOf) {
  const TemporaryFolder folder;
  format::ModelConfig bert = small_config();
  bert.model_type = "bert";
  bert.encoder.embedding_size.reset();
  for (const std::string activation : {"gelu", "gelu_new", "relu"}) {
    bert.encoder.activation = activation;
    const fs::path place = folder.path() / activation;
    const Model model = model::build_model({.config = bert, .head = model::Head::masked_lm});
    model::save_folder(model, bert, model::Head::masked_lm, tokenizer_, place);
    testing::internal::CaptureStderr();
    objective({.generator = place});
    const std::string errors = testing::internal::GetCapturedStderr();
    EXPECT_EQ(errors.find("was trained with " + activation) != errors.npos, activation != "gelu") << errors;
  }
  try {
    objective({.generator_layers = 2, .generator = folder.path() / "gelu"});
    ADD_FAILURE() << "layers of a new generator are ignored";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("this generator has its own layers"), std::string::npos);
  }
}

TEST_F(ElectraTest, WhatDoesNotFitIsRefused) {
  const auto refusal = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal([&] { objective({.generator_size = 1.5}); }).find("above 0 and at most 1, found 1.5"),
            std::string::npos);
  EXPECT_NE(refusal([&] { objective({.generator_layers = -1}); }).find("or 0 for as many as"),
            std::string::npos);
  EXPECT_NE(refusal([&] { objective().build({}); }).find("is ELECTRA's; found a bert"), std::string::npos);
  MaskedLmOptions hf;
  hf.compat = Compat::hf;
  EXPECT_NO_THROW(Electra(tokenizer_, hf, {}));
  hf.masking = Masking::whole_word;
  EXPECT_NE(refusal([&] {
              Electra(tokenizer_, hf, {});
            }).find("but ELECTRA does so for 85 % of them; leave --compat"),
            std::string::npos);
  format::ModelConfig other = small_config();
  other.encoder.vocabulary += 1;
  EXPECT_NE(
      refusal([&] { join_electra({.config = small_config()}, {.config = other}); }).find("Found 211 tokens"),
      std::string::npos);
}

}  // namespace
}  // namespace funicular::objective
