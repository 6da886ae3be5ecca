// What a BERT is made of, beside its formula: how its weights begin, its normalisation, its pooler, old names
// of weights.

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "funicular/format/safetensors.h"
#include "funicular/format/safetensors_writer.h"
#include "funicular/model/encoder.h"
#include "funicular/model/weights.h"

namespace funicular::model {
namespace {

ModelOptions small_options(Head head) {
  ModelOptions options;
  options.config.encoder.vocabulary = 400;
  options.config.encoder.width = 48;
  options.config.encoder.layers = 2;
  options.config.encoder.heads = 3;
  options.config.encoder.feed_forward.width = 60;
  options.config.encoder.positions.rows = 32;
  options.config.num_labels = 3;
  options.config.encoder.initializer_range = 0.3;
  options.config.encoder.norm.epsilon = 0.25;
  options.head = head;
  options.dtype = at::kDouble;
  return options;
}

at::Tensor weight(const Model& model, const std::string& name) {
  const Parameter* const found = model.find(name);
  EXPECT_NE(found, nullptr) << name;
  return found->master.detach();
}

TEST(BertWeights, BeginNormallyDistributedWithTheDeviationOfTheConfiguration) {
  const Model model = build_model(small_options(Head::classification));
  const at::Tensor words = weight(model, "bert.embeddings.word_embeddings.weight");
  EXPECT_FALSE(words[0].any().item<bool>()) << "the padding token's row is zero";
  const at::Tensor values = words.narrow(0, 1, words.size(0) - 1) / 0.3;
  EXPECT_NEAR(values.mean().item<double>(), 0, 0.03);
  EXPECT_NEAR(values.square().mean().item<double>(), 1, 0.05);
  EXPECT_NEAR(values.pow(4).mean().item<double>(), 3, 0.4) << "a normal distribution's fourth moment";
}

TEST(BertWeights, BeginUnrelatedToEachOther) {
  const Model model = build_model(small_options(Head::classification));
  const at::Tensor fused = weight(model, "bert.encoder.layer.0.attention.self.query_key_value.weight");
  const std::vector<at::Tensor> squares = {
      fused.narrow(0, 0, 48), fused.narrow(0, 48, 48),
      weight(model, "bert.encoder.layer.0.attention.output.dense.weight"),
      weight(model, "bert.encoder.layer.1.attention.output.dense.weight")};
  for (size_t i = 0; i < squares.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_NEAR((squares[i] * squares[j]).mean().item<double>() / 0.09, 0, 0.12) << i << " and " << j;
}

/// What the taps of a forward pass see, by name.
std::map<std::string, at::Tensor> observe(const Model& model, const MicroBatch& batch) {
  const at::NoGradGuard no_gradient;
  std::map<std::string, at::Tensor> seen;
  Taps taps;
  taps.observe = [&](std::string_view name, const at::Tensor& value) {
    seen[std::string(name)] = value.detach();
  };
  LossSink sink;
  model.forward({}, batch, taps, sink);
  return seen;
}

MicroBatch batch() {
  MicroBatch batch;
  batch.packing = Packing::from_lengths({5, 9, 2}, {0, 1, 2}, {0, 1, 2}, {});
  batch.tensors["token_ids"] = (torch::arange(16) * 37 + 5) % 400;
  batch.tensors["token_type_ids"] = torch::arange(16) % 2;
  return batch;
}

TEST(BertParts, NormaliseWithTheEpsilonOfTheConfiguration) {
  const Model model = build_model(small_options(Head::classification));
  const MicroBatch input = batch();
  const std::string prefix = "bert.embeddings.";
  const at::Tensor sum =
      weight(model, prefix + "word_embeddings.weight").index_select(0, input["token_ids"]) +
      weight(model, prefix + "position_embeddings.weight").index_select(0, input.packing.positions) +
      weight(model, prefix + "token_type_embeddings.weight").index_select(0, input["token_type_ids"]);
  const at::Tensor expected = at::layer_norm(sum, {48}, weight(model, prefix + "LayerNorm.weight"),
                                             weight(model, prefix + "LayerNorm.bias"), 0.25);
  EXPECT_TRUE(at::allclose(observe(model, input).at("embeddings"), expected, 1e-12, 1e-13));
}

TEST(BertParts, ClassifyTheFirstTokenThroughAHyperbolicTangent) {
  const Model model = build_model(small_options(Head::classification));
  const auto seen = observe(model, batch());
  const at::Tensor first = seen.at("layer.1").index_select(0, torch::tensor({0, 5, 14}, torch::kLong));
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::linear(x, weight(model, name + ".weight"), weight(model, name + ".bias"));
  };
  const at::Tensor expected = linear(at::tanh(linear(first, "bert.pooler.dense")), "classifier");
  EXPECT_TRUE(at::allclose(seen.at("logits"), expected, 1e-11, 1e-12));
}

/// Copies a weights file under the names of TensorFlow's BERT.
void rename_normalisations(const fs::path& from, const fs::path& to) {
  const format::SafetensorsFile file(from);
  std::vector<format::TensorDeclaration> declared;
  std::map<std::string, const format::TensorEntry*> entries;
  for (const format::TensorEntry& entry : file.entries()) {
    std::string name = entry.name;
    if (const size_t at = name.find("LayerNorm."); at != name.npos)
      name = name.substr(0, at + 10) + (name.ends_with("weight") ? "gamma" : "beta");
    declared.push_back({name, entry.dtype, entry.shape});
    entries[name] = &entry;
  }
  format::SafetensorsWriter writer(to, declared);
  for (const auto& [name, entry] : entries) writer.write(name, entry->data);
  writer.close();
}

TEST(BertWeights, OfOldFilesAreFoundUnderTheirOldNames) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-bert-parts-" + std::to_string(::getpid()));
  fs::create_directories(folder / "old");
  const ModelOptions options = small_options(Head::masked_lm);
  const Model saved = build_model(options);
  for (const auto& parameter : saved.parameters) parameter->master.detach().add_(0.5);  // no zeros and ones
  save_pretrained(saved, options.config, Head::masked_lm, folder);
  rename_normalisations(folder / "model.safetensors", folder / "old/model.safetensors");
  Model loaded = build_model(options);
  const LoadReport report = load_pretrained(loaded, folder / "old");
  EXPECT_TRUE(report.missing.empty());
  EXPECT_TRUE(report.unexpected.empty());
  for (size_t i = 0; i < saved.parameters.size(); ++i)
    EXPECT_TRUE(at::allclose(saved.parameters[i]->master, loaded.parameters[i]->master, 1e-6, 1e-7))
        << saved.parameters[i]->name;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace funicular::model
