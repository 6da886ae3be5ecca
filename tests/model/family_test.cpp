// Claims about the families that share BERT's layers: their sizes, and what each does otherwise.
#include "funicular/format/family.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/model/encoder.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/replaced_tokens.h"
#include "funicular/model/tensor_file.h"
#include "funicular/model/token_classifier.h"
#include "funicular/model/weights.h"

namespace funicular::model::family_tests {
namespace {

format::ModelConfig roberta_base() {
  format::ModelConfig config = format::default_config("roberta");
  config.encoder.positions.rows = 514;
  config.encoder.token_types = 1;
  return config;
}

format::ModelConfig small(const std::string& family) {
  format::ModelConfig config = format::default_config(family);
  config.encoder.vocabulary = 50;
  config.encoder.width = 24;
  config.encoder.set_layers(2);
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 40;
  config.encoder.positions.rows = 32;
  config.num_labels = 3;
  config.encoder.padding_id = std::min(config.encoder.padding_id, 4);
  if (config.encoder.embedding_size) config.encoder.embedding_size = 20;
  return config;
}

MicroBatch batch_of(const std::vector<int64_t>& ids, bool training = false) {
  MicroBatch batch;
  const auto length = static_cast<int32_t>(ids.size());
  batch.packing = Packing::from_lengths({length}, {3}, {3}, {.seed = 7, .training = training});
  batch.tensors["token_ids"] = torch::tensor(ids);
  batch.tensors["token_type_ids"] = torch::zeros({length}, torch::kLong);
  return batch;
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Families, AreThoseThatConfigurationsAreReadOf) {
  std::vector<std::string> names;
  for (const format::Family& family : format::families()) names.push_back(family.model_type);
  EXPECT_EQ(names, format::supported_model_types());
  format::ModelConfig config;
  config.model_type = "xlnet";
  EXPECT_NE(refusal([&] { format::family_of(config); })
                .find("one of the families bert, roberta, electra, distilbert, modernbert, xlm-roberta, "
                      "camembert, ernie, mpnet, albert, deberta-v2, nomic_bert, gte, found \"xlnet\""),
            std::string::npos);
}

TEST(Families, HaveThePublishedNumbersOfWeights) {
  const int64_t pooler = 768 * 768 + 768;
  EXPECT_EQ(count_parameters(roberta_base(), Head::masked_lm), 124'697'433);
  const int64_t head = Head::masked_lm.parameters(roberta_base());
  EXPECT_EQ(count_parameters(roberta_base(), Head::masked_lm) - head + pooler, 124'645'632);
  const format::ModelConfig electra_small = format::default_config("electra");
  EXPECT_EQ(count_parameters(electra_small, replaced_tokens_head()), 13'549'057);
  EXPECT_EQ(count_parameters(electra_small, replaced_tokens_head()) - 257 * 257, 13'483'008);
  EXPECT_EQ(count_parameters(electra_small, Head::none), 13'483'008) << "it has no pooler";
  EXPECT_EQ(count_parameters(format::ModelConfig(), Head::masked_lm) -
                Head::masked_lm.parameters(format::ModelConfig()) + pooler,
            109'482'240);
}

TEST(Families, WithRelativePositionsHaveThePublishedNumbersOfWeights) {
  format::ModelConfig mpnet = format::default_config("mpnet");
  mpnet.encoder.positions.rows = 514;
  EXPECT_EQ(count_parameters(mpnet, Head::none), 109'486'464);
  format::ModelConfig deberta = format::default_config("deberta-v2");  // v3-base
  deberta.encoder.width = 768;
  deberta.encoder.set_layers(12);
  deberta.encoder.heads = 12;
  deberta.encoder.feed_forward.width = 3072;
  deberta.encoder.positions.table = false;
  EXPECT_EQ(count_parameters(deberta, Head::none), 183'831'552);
  EXPECT_EQ(count_parameters(deberta, Head::masked_lm), 184'551'780);
}

/// nomic-embed-text-v1.5 and gte-multilingual-base.
TEST(Families, WithRotaryPositionsAndNormsAfterSumsHaveThePublishedNumbersOfWeights) {
  EXPECT_EQ(count_parameters(format::default_config("nomic_bert"), Head::none), 136'731'648);
  EXPECT_EQ(count_parameters(format::default_config("gte"), Head::none), 305'368'320);
}

TEST(Families, AlbertsShareTheWeightsOfALayer) {
  format::ModelConfig albert = format::default_config("albert");
  albert.encoder.width = 768;
  albert.encoder.heads = 12;
  albert.encoder.feed_forward.width = 3072;
  EXPECT_EQ(count_parameters(albert, Head::none), 11'683'584);
  EXPECT_EQ(count_parameters(albert, Head::masked_lm), 11'221'680);
  format::ModelConfig groups = small("albert");
  groups.encoder.set_layers(6);
  groups.encoder.layer_groups = 2;
  const Model model = build_model({groups, Head::masked_lm});
  const auto weights = [&](const char* segment) {
    for (const Segment& one : model.segments)
      if (one.name == segment) return std::set<Parameter*>(one.parameters.begin(), one.parameters.end());
    return std::set<Parameter*>();
  };
  EXPECT_EQ(weights("layer.2"), weights("layer.0"));
  EXPECT_EQ(weights("layer.5"), weights("layer.3"));
  EXPECT_NE(weights("layer.3"), weights("layer.2"));
}

TEST(Families, ARunKnowsTheModelByItsGroupsAndDistances) {
  format::ModelConfig albert = small("albert"), deberta = small("deberta-v2");
  const std::string one_group = describe_model(albert), far = describe_model(deberta);
  albert.encoder.layer_groups = 2;
  deberta.encoder.positions.relative->farthest = 300;
  format::ModelConfig gte = small("gte");
  const std::string turned = describe_model(gte);
  for (format::LayerAttention& layer : gte.encoder.attention) layer.rotary_base = 7;
  EXPECT_NE(describe_model(gte), turned);
  EXPECT_EQ(describe_model(small("modernbert")).find("rotary"), std::string::npos) << "as in older versions";
  EXPECT_NE(describe_model(albert), one_group);
  EXPECT_NE(describe_model(deberta), far);
  EXPECT_TRUE(describe_model(format::ModelConfig()).ends_with("(classifier)")) << "as in older versions";
}

TEST(Families, MessagesNameTheKeysOfTokenTypesAndGroups) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-keys-test-" + std::to_string(::getpid()));
  format::ModelConfig config = small("deberta-v2");
  config.encoder.token_types = 1;
  save_pretrained(build_model({config, Head::none}), config, Head::none, folder);
  const auto pairs = text::SequenceTemplate::bert("[CLS]", 1, "[SEP]", 2);
  EXPECT_NE(refusal([&] { Pretrained(folder).check_columns(2, pairs); }).find("type_vocab_size is 1"),
            std::string::npos);
  config.encoder.token_types = 2;
  EXPECT_NE(refusal([&] { check_sizes(config, folder); }).find("says \"type_vocab_size\" 2"),
            std::string::npos);
  config = small("albert");
  save_pretrained(build_model({config, Head::none}), config, Head::none, folder);
  config.encoder.layer_groups = 2;
  EXPECT_NE(refusal([&] { check_sizes(config, folder); }).find("2 groups of layers (\"num_hidden_groups\")"),
            std::string::npos);
  fs::remove_all(folder);
}

TEST(Families, ModernBertsHaveThePublishedNumbersOfWeights) {
  const format::ModelConfig base = format::default_config("modernbert");
  EXPECT_EQ(count_parameters(base, Head::masked_lm), 149'655'232);
  format::ModelConfig ettin = base;
  ettin.encoder.set_layers(7);
  ettin.encoder.width = 256;
  ettin.encoder.heads = 4;
  ettin.encoder.feed_forward.width = 384;
  EXPECT_EQ(count_parameters(ettin, Head::masked_lm), 16'913'600);
}

TEST(Families, AreCountedBeforeTheyAreMade) {
  for (const std::string& family : format::supported_model_types())
    for (const Head& head : {Head::masked_lm, Head::classification}) {
      const format::ModelConfig config = small(family);
      EXPECT_EQ(count_parameters(config, head), build_model({config, head}).parameter_count()) << family;
    }
  format::ModelConfig wide = small("electra");
  wide.encoder.embedding_size = wide.encoder.width;  // nothing is projected
  EXPECT_EQ(count_parameters(wide, replaced_tokens_head()),
            build_model({wide, replaced_tokens_head()}).parameter_count());
}

TEST(Families, NamesOfWeightsAreTranslatedIntoNeutralOnes) {
  const std::pair<const char*, const char*> names[] = {
      {"distilbert.transformer.layer.13.attention.q_lin.weight",
       "encoder.layer.13.attention.self.query.weight"},
      {"transformer.layer.0.sa_layer_norm.bias", "encoder.layer.0.attention.output.LayerNorm.bias"},
      {"transformer.layer.0.adapter.weight", "encoder.layer.0.adapter.weight"},
      {"vocab_transform.weight", "cls.predictions.transform.dense.weight"},
      {"vocab_projector.bias", "cls.predictions.bias"},
      {"bert.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.weight"},
      {"roberta.encoder.layer.2.output.dense.bias", "encoder.layer.2.output.dense.bias"},
      {"lm_head.decoder.weight", "cls.predictions.decoder.weight"},
      {"model.layers.3.attn.Wqkv.key.weight", "encoder.layer.3.attention.self.key.weight"},
      {"layers.0.mlp.Wi.gate.weight", "encoder.layer.0.intermediate.gate.weight"},
      {"model.final_norm.weight", "encoder.final_norm.weight"},
      {"mpnet.encoder.layer.3.attention.attn.o.bias", "encoder.layer.3.attention.output.dense.bias"},
      {"encoder.layer.0.attention.LayerNorm.weight", "encoder.layer.0.attention.output.LayerNorm.weight"},
      {"mpnet.encoder.relative_attention_bias.weight", "encoder.relative_attention_bias.weight"},
      {"albert.encoder.albert_layer_groups.1.albert_layers.0.ffn_output.weight",
       "encoder.layer.1.output.dense.weight"},
      {"albert.encoder.embedding_hidden_mapping_in.bias", "embeddings_project.bias"},
      {"albert.pooler.weight", "pooler.dense.weight"},
      {"predictions.decoder.bias", "cls.predictions.bias"},
      {"deberta.encoder.layer.1.attention.self.value_proj.weight",
       "encoder.layer.1.attention.self.value.weight"},
      {"deberta.encoder.rel_embeddings.weight", "encoder.relative_vectors.weight"},
      {"deberta.encoder.LayerNorm.bias", "encoder.relative_norm.bias"},
      {"nomic_bert.layers.4.mlp.gate_proj.weight", "encoder.layer.4.intermediate.gate.weight"},
      {"layers.0.self_attn.k_proj.bias", "encoder.layer.0.attention.self.key.bias"},
      {"gte.layers.1.post_mlp_layernorm.bias", "encoder.layer.1.output.LayerNorm.bias"},
      {"gte.pooler.dense.weight", "pooler.dense.weight"},
      {"bert.encoder.layers.2.attn.Wqkv.key.weight", "encoder.layer.2.attention.self.key.weight"},
      {"encoder.layers.2.mlp.fc12.weight", "encoder.layer.2.intermediate.gate.weight"},
      {"encoder.layers.2.mlp.fc11.weight", "encoder.layer.2.intermediate.dense.weight"},
      {"bert.emb_ln.bias", "embeddings.LayerNorm.bias"},
      {"cls.predictions.transform.layer_norm.weight", "cls.predictions.transform.LayerNorm.weight"},
      {"new.encoder.layer.2.attention.v_proj.bias", "encoder.layer.2.attention.self.value.bias"},
      {"new.encoder.layer.2.attn_ln.weight", "encoder.layer.2.attention.output.LayerNorm.weight"},
      {"lm_head.norm.weight", "cls.predictions.transform.LayerNorm.weight"},
      {"decoder.bias", "cls.predictions.bias"},
      {"ernie.embeddings.task_type_embeddings.weight", "embeddings.task_type_embeddings.weight"},
      {"classifier.out_proj.weight", "classifier.out_proj.weight"}};
  for (const auto& [name, neutral] : names) {
    EXPECT_EQ(format::neutral_name(name), neutral);
    EXPECT_EQ(format::neutral_name(neutral), neutral);
  }
}

TEST(Families, WeightsThatFilesHoldAsOneAreCutIntoParts) {
  const std::vector<std::string> parts = {"model.layers.3.attn.Wqkv.query.weight",
                                          "model.layers.3.attn.Wqkv.key.weight",
                                          "model.layers.3.attn.Wqkv.value.weight"};
  EXPECT_EQ(format::parts_of_joint("model.layers.3.attn.Wqkv.weight"), parts);
  for (const std::string& part : parts)
    EXPECT_EQ(format::joint_of_part(part), "model.layers.3.attn.Wqkv.weight");
  EXPECT_EQ(format::parts_of_joint("layers.0.mlp.Wi.bias"),
            (std::vector<std::string>{"layers.0.mlp.Wi.gate.bias", "layers.0.mlp.Wi.up.bias"}));
  for (const char* const name :
       {"model.layers.3.attn.Wo.weight", "roberta.encoder.layer.0.output.dense.bias"}) {
    EXPECT_TRUE(format::parts_of_joint(name).empty()) << name;
    EXPECT_EQ(format::joint_of_part(name), "") << name;
  }
}

/// A form of files beside that of transformers 5.
struct OlderForm {
  std::string family;
  std::vector<std::pair<std::string, std::string>>
      names;  ///< present parts of names, and those that stand there instead
  std::vector<std::pair<std::string, std::vector<std::string>>>
      joints;  ///< weights of a layer, and their parts in order
};

const std::vector<OlderForm>& older_forms() {
  static const std::vector<std::string> query_key_value = {"self_attn.q_proj", "self_attn.k_proj",
                                                           "self_attn.v_proj"};
  static const std::vector<OlderForm> forms = {
      {"nomic_bert",
       {{"nomic_bert.", "bert."},
        {".embeddings.LayerNorm", ".emb_ln"},
        {".layers.", ".encoder.layers."},
        {"self_attn.o_proj", "attn.out_proj"},
        {"post_attention_layernorm", "norm1"},
        {"post_mlp_layernorm", "norm2"},
        {"mlp.gate_proj", "mlp.fc12"},
        {"mlp.up_proj", "mlp.fc11"},
        {"mlp.down_proj", "mlp.fc2"}},
       {{"attn.Wqkv", query_key_value}}},
      {"gte",
       {{"gte.", "new."},
        {".layers.", ".encoder.layer."},
        {"self_attn.o_proj", "attention.o_proj"},
        {"post_attention_layernorm", "attn_ln"},
        {"post_mlp_layernorm", "mlp_ln"},
        {"lm_head.layer_norm", "lm_head.norm"}},
       {{"attention.qkv_proj", query_key_value}, {"mlp.up_gate_proj", {"mlp.up_proj", "mlp.gate_proj"}}}}};
  return forms;
}

/// The tensors of a file of transformers 5 as the older form holds them.
std::map<std::string, at::Tensor> under_older_names(std::map<std::string, at::Tensor> tensors,
                                                    const OlderForm& form) {
  for (const auto& [whole, parts] : form.joints) {
    std::map<std::string, std::vector<at::Tensor>> joined;
    for (const std::string& part : parts)
      for (auto one = tensors.begin(); one != tensors.end();) {
        const size_t place = one->first.find(part);
        if (place != std::string::npos)
          joined[std::string(one->first).replace(place, part.size(), whole)].push_back(one->second);
        one = place != std::string::npos ? tensors.erase(one) : std::next(one);
      }
    for (const auto& [name, rows] : joined) tensors[name] = at::cat(rows);
  }
  std::map<std::string, at::Tensor> renamed;
  for (const auto& [name, tensor] : tensors) {
    std::string other = name;
    for (const auto& [present, older] : form.names)
      if (const size_t place = other.find(present); place != std::string::npos)
        other.replace(place, present.size(), older);
    renamed[other] = tensor;
  }
  return renamed;
}

TEST(Families, OlderFilesOfAFamilyHoldTheSameWeights) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-older-test-" + std::to_string(::getpid()));
  for (const OlderForm& form : older_forms()) {
    const format::ModelConfig config = small(form.family);
    const Model model = build_model({.config = config, .head = Head::masked_lm, .seed = 1});
    save_pretrained(model, config, Head::masked_lm, folder);
    std::map<std::string, at::Tensor> tensors;
    for (const auto& parameter : model.parameters)
      for (const Parameter::Slice& slice : parameter->slices)
        tensors[slice.name] = parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
    OlderForm mixed = form;  // as transformers 5 writes them: its own prefix, and the older names behind it
    mixed.names.erase(mixed.names.begin());
    for (const OlderForm& one : {form, mixed}) {
      const std::map<std::string, at::Tensor> older = under_older_names(tensors, one);
      EXPECT_LT(older.size(), tensors.size());
      write_tensors(older, folder / "model.safetensors");
      EXPECT_NO_THROW(check_sizes(config, folder));
      Model again = build_model({.config = config, .head = Head::masked_lm, .seed = 2});
      const LoadReport report = load_pretrained(again, folder);
      EXPECT_TRUE(report.missing.empty()) << report.missing.front();
      EXPECT_TRUE(report.unexpected.empty()) << report.unexpected.front();
      for (size_t i = 0; i < model.parameters.size(); ++i)
        EXPECT_TRUE(at::equal(model.parameters[i]->master, again.parameters[i]->master))
            << model.parameters[i]->name;
    }
    fs::remove_all(folder);
  }
}

TEST(Families, APartOfAWeightThatIsMissingIsNamed) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-parts-test-" + std::to_string(::getpid()));
  const std::map<std::string, at::Tensor> weights = {
      {"model.layers.0.mlp.Wi.up.weight", torch::ones({2, 2})}};
  const std::string message =
      refusal([&] { save_weights(weights, small("modernbert"), Head::masked_lm, folder); });
  EXPECT_NE(message.find("model.layers.0.mlp.Wi.weight cannot be written: expected its part "
                         "model.layers.0.mlp.Wi.gate.weight"),
            message.npos)
      << message;
  fs::remove_all(folder);
}

TEST(Families, MessagesNameTheWeightThatAFileHolds) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-whole-test-" + std::to_string(::getpid()));
  format::ModelConfig config = small("modernbert");
  save_pretrained(build_model({config, Head::masked_lm}), config, Head::masked_lm, folder);
  config.encoder.feed_forward.width = 44;
  Model wider = build_model({config, Head::masked_lm});
  const std::string message = refusal([&] { load_pretrained(wider, folder); });
  EXPECT_NE(message.find("model.layers.0.mlp.Wi.weight (its part "), message.npos) << message;
  fs::remove_all(folder);
}

TEST(Families, AClassifierOfAModernBertHasTheActivationOfItsFile) {
  format::ModelConfig config = small("modernbert");
  const auto logits = [&](const std::string& activation) {
    config.head_activation = activation;
    const Model model = build_model({.config = config, .head = Head::classification, .seed = 3});
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, batch_of({0, 7, 8, 2}), {}, sink);
    return sink.outputs().at("logits").detach().clone();
  };
  EXPECT_TRUE(at::equal(logits("gelu"), logits("")));
  EXPECT_FALSE(at::allclose(logits("gelu"), logits("tanh")));
}

TEST(Families, AMaskedLmHeadOfAnotherModernBertIsRefusedAndAClassifierIsNot) {
  format::ModelConfig config = small("modernbert");
  config.decoder_bias = false;
  EXPECT_NO_THROW(build_model({config, Head::classification}));
  EXPECT_NE(refusal([&] {
              build_model({config, Head::masked_lm});
            }).find("\"decoder_bias\": expected true"),
            std::string::npos);
  config.decoder_bias = true;
  config.head_activation = "silu";
  EXPECT_NE(refusal([&] {
              build_model({config, Head::masked_lm});
            }).find("\"classifier_activation\""),
            std::string::npos);
}

TEST(Families, DistilbertsPositionsMayBeginAsSinesAndCosines) {
  format::ModelConfig config = small("distilbert");
  config.encoder.positions.waves = true;
  const Model model = build_model({config, Head::masked_lm});
  const at::Tensor table = model.find("distilbert.embeddings.position_embeddings.weight")->master;
  for (const auto& [row, channel] : {std::pair{0, 0}, {0, 1}, {1, 0}, {7, 10}, {31, 23}}) {
    const double angle = row / std::pow(10000.0, 2.0 * (channel / 2) / 24);
    EXPECT_NEAR(table[row][channel].item<double>(), channel % 2 ? std::cos(angle) : std::sin(angle), 1e-6);
  }
}

TEST(Families, DistilbertDropsWordsForTagsAsItsEncoderDoes) {
  format::ModelConfig config = small("distilbert");
  config.encoder.dropouts = {.hidden = 0, .attention = 0, .attention_output = 0};
  config.classifier_dropout = 0.5;  // of whole texts alone
  const Model model = build_model({config, token_classifier()});
  const auto logits = [&](bool training) {
    MicroBatch batch = batch_of({0, 7, 8, 2}, training);
    batch.tensors["tag_rows"] = torch::tensor({1, 2}, torch::kLong);
    batch.tensors["tag_sequences"] = torch::zeros({2}, torch::kLong);
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, batch, {}, sink);
    return sink.outputs().at("logits").detach().clone();
  };
  EXPECT_TRUE(at::equal(logits(true), logits(false)));
}

TEST(Families, RobertaHasPositionsForTwoTokensLess) {
  const format::ModelConfig config = small("roberta");
  EXPECT_EQ(config.encoder.first_position(), 2);
  EXPECT_EQ(config.encoder.longest_sequence(), 30);
  const Model model = build_model({config, Head::classification});
  const at::Tensor positions = model.find("roberta.embeddings.position_embeddings.weight")->master;
  for (int64_t row = 0; row < 4; ++row)
    EXPECT_EQ(positions[row].abs().sum().item<double>() > 0, row != config.encoder.padding_id) << row;
  LossSink sink;
  EXPECT_NO_THROW(model.forward({}, batch_of(std::vector<int64_t>(30, 7)), {}, sink));
  const std::string message =
      refusal([&] { model.forward({}, batch_of(std::vector<int64_t>(31, 7)), {}, sink); });
  EXPECT_NE(message.find("has 31 tokens; this model has positions for 30"), message.npos) << message;
  EXPECT_NE(refusal([&] { check_positions(31, config); }).find("the model's 30 positions"),
            std::string::npos);
}

/// The rows of the position embeddings that learn from a sequence.
std::set<int64_t> learning_rows(const std::vector<int64_t>& ids) {
  const Model model = build_model({small("roberta"), Head::masked_lm});
  MicroBatch batch = batch_of(ids);
  batch.tensors["mlm_rows"] = torch::tensor({0}, torch::kLong);
  batch.tensors["mlm_labels"] = torch::tensor({5}, torch::kLong);
  LossSink sink;
  model.forward({}, batch, {}, sink);
  sink.total({{"mlm", 1}}).backward();
  const at::Tensor rows =
      model.find("roberta.embeddings.position_embeddings.weight")->compute.grad().abs().sum(1);
  std::set<int64_t> found;
  for (int64_t row = 0; row < rows.size(0); ++row)
    if (rows[row].item<double>() > 0) found.insert(row);
  return found;
}

TEST(Families, RobertaCountsPositionsFromPaddingOnAndPaddingStandsAtNone) {
  EXPECT_EQ(learning_rows({0, 7, 8, 2}), (std::set<int64_t>{2, 3, 4, 5}));
  // 1 is padding: the others are counted without it, and its own row learns nothing.
  EXPECT_EQ(learning_rows({0, 1, 8, 1, 2}), (std::set<int64_t>{2, 3, 4}));
}

TEST(Families, WeightsThatAreNamedAsAnotherFamilysAreRefused) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-names-test-" + std::to_string(::getpid()));
  const auto save = [&](const std::string& named, const std::string& read) {
    const format::ModelConfig config = small(read);
    const std::string& own = format::family_of(config).prefix;
    const Model model = build_model({.config = config, .head = Head::masked_lm, .seed = 1});
    std::map<std::string, at::Tensor> weights = {{"model.0.weight", torch::zeros({1})}};  // of no encoder
    for (const auto& parameter : model.parameters)
      for (const Parameter::Slice& slice : parameter->slices)
        weights[slice.name.starts_with(own) ? named + slice.name.substr(own.size()) : slice.name] =
            parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
    save_weights(weights, config, Head::masked_lm, folder);
    return config;
  };
  const auto told = [&](const std::string& named, const std::string& read) {
    Model again = build_model({.config = save(named, read), .head = Head::masked_lm, .seed = 2});
    return refusal([&] { Pretrained(folder).load(again, true); });
  };
  for (const auto& [named, read, expected] : std::vector<std::array<std::string, 3>>{
           {"roberta.", "bert", "is the name of a weight of RoBERTa, but config.json says"},
           {"roberta.", "bert", "set \"model_type\" to roberta or xlm-roberta or camembert"},
           {"bert.", "xlm-roberta", "set \"model_type\" to bert or nomic_bert"},
           {"bert.", "ernie", "is the name of a weight of BERT"},
           {"gte.", "nomic_bert", "set \"model_type\" to gte"},
           {"new.", "bert", "set \"model_type\" to gte"}})
    EXPECT_NE(told(named, read).find(expected), std::string::npos) << named << read << told(named, read);
  for (const auto& [named, read] :
       std::vector<std::pair<std::string, std::string>>{{"roberta.", "roberta"},
                                                        {"roberta.", "xlm-roberta"},
                                                        {"roberta.", "camembert"},
                                                        {"new.", "gte"},
                                                        {"bert.", "nomic_bert"},
                                                        {"", "bert"},
                                                        {"bert.", "bert"}})
    EXPECT_EQ(told(named, read), "") << named << read;
  // An ELECTRA may begin with a BERT.
  save("bert.", "bert");
  Pretrained bert(folder);
  bert.read_as_electra();
  Model electra = build_model({.config = bert.config(), .head = Head::none, .seed = 2});
  EXPECT_NO_THROW(bert.load(electra, true));
  fs::remove_all(folder);
}

TEST(Families, WeightsOfAnotherFamilyAreRefusedWhereTheEncoderWouldBeginWithRandomOnes) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-other-test-" + std::to_string(::getpid()));
  const format::ModelConfig bert = small("bert");
  for (const std::string family : {"modernbert", "deberta-v2", "distilbert", "mpnet"})
    for (const bool has_prefix : {true, false}) {
      const format::ModelConfig config = small(family);
      const std::string& prefix = format::family_of(config).prefix;
      const Model other = build_model({.config = config, .head = Head::none});
      std::map<std::string, at::Tensor> weights;
      for (const auto& parameter : other.parameters)
        for (const Parameter::Slice& slice : parameter->slices)
          weights[has_prefix ? slice.name : slice.name.substr(prefix.size())] =
              parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
      save_weights(weights, config, Head::none, folder);
      EXPECT_TRUE(missing_in_encoder(config, folder).empty()) << family;
      EXPECT_NO_THROW(refuse_other_family(config, folder, {"bert.embeddings.LayerNorm.bias"})) << family;
      format::write_model_config(folder, bert);
      Model model = build_model({.config = bert, .head = Head::classification});
      const std::string message = refusal([&] { Pretrained(folder).load(model, true); });
      EXPECT_NE(message.find("of " + format::family_of(config).title +
                             ", but config.json says \"model_type\" "
                             "\"bert\", and these weights of BERT are missing: bert.embeddings."),
                std::string::npos)
          << family << has_prefix << message;
      EXPECT_FALSE(missing_in_encoder(bert, folder).empty()) << family;
      fs::remove_all(folder);
    }
}

TEST(Families, FoldersAreReadWithTheFamilysNamesAndWithout) {
  const fs::path folder = fs::temp_directory_path() / ("funicular-family-test-" + std::to_string(::getpid()));
  for (const std::string& family : format::supported_model_types()) {
    const format::ModelConfig config = small(family);
    const Model model = build_model({.config = config, .head = Head::masked_lm, .seed = 1});
    save_pretrained(model, config, Head::masked_lm, folder);
    const format::ModelConfig read = format::read_model_config(folder);
    EXPECT_EQ(read.model_type, family);
    EXPECT_EQ(read.architectures,
              std::vector<std::string>{format::family_of(config).classes + "ForMaskedLM"});
    EXPECT_NO_THROW(check_sizes(read, folder));
    Model again = build_model({.config = read, .head = Head::masked_lm, .seed = 2});
    const LoadReport report = load_pretrained(again, folder);
    EXPECT_TRUE(report.missing.empty() && report.unexpected.empty()) << family;
    for (size_t i = 0; i < model.parameters.size(); ++i)
      EXPECT_TRUE(at::equal(model.parameters[i]->master, again.parameters[i]->master))
          << model.parameters[i]->name;
    // The encoder alone, as transformers saves one without a head.
    std::map<std::string, at::Tensor> bare;
    for (const auto& parameter : model.parameters)
      for (const Parameter::Slice& slice : parameter->slices)
        if (const std::string& prefix = format::family_of(config).prefix; slice.name.starts_with(prefix))
          bare[slice.name.substr(prefix.size())] =
              parameter->master.detach().narrow(0, slice.begin, slice.end - slice.begin);
    save_weights(bare, config, Head::masked_lm, folder);
    Model encoder = build_model({.config = config, .head = Head::classification, .seed = 3});
    for (const std::string& name : load_pretrained(encoder, folder).missing)
      EXPECT_NE(name.starts_with("head.")
                    ? 0
                    : name.find(format::family_of(config).classifier.dense.starts_with("pooler") &&
                                        name.find("pooler") != name.npos
                                    ? "pooler"
                                    : "classifier."),
                name.npos)
          << name;
    fs::remove_all(folder);
  }
}

TEST(Families, OfAClassifierTheLastLayerAloneHasTheClasses) {
  for (const std::string& family : format::supported_model_types()) {
    const format::ModelConfig config = small(family);
    Model model = build_model({.config = config, .head = Head::classification});
    const std::string layer = classes_layer(config);
    const Model before = build_model({.config = config, .head = Head::classification});
    reorder_classes(model, layer, {"a", "b", "c"}, {"c", "a", "b"});
    for (const auto& parameter : model.parameters) {
      const at::Tensor &now = parameter->master, &then = before.find(parameter->name)->master;
      if (parameter->name.starts_with(layer) && now.dim() == 2)
        EXPECT_TRUE(at::equal(now, then.index_select(0, torch::tensor({2, 0, 1})))) << parameter->name;
      else
        EXPECT_TRUE(at::equal(now, then)) << parameter->name;
    }
    EXPECT_EQ(model.find(layer + "weight")->master.size(0), 3) << family;
  }
}

TEST(Families, ClassifiersWithALayerOfTheirOwnDropOnBothSidesOfIt) {
  for (const std::string family : {"roberta", "electra"}) {
    format::ModelConfig config = small(family);
    config.encoder.dropouts.hidden = config.encoder.dropouts.attention = 0;
    config.classifier_dropout = 0.5;
    Model model = build_model({config, Head::classification});
    const auto logits = [&](bool training) {
      LossSink sink;
      sink.keep_outputs = true;
      model.forward({}, batch_of({0, 7, 8, 2}, training), {}, sink);
      return sink.outputs().at("logits").detach().clone();
    };
    // Where the second layer passes its input on and the first gives ones, only the second dropout is seen:
    // each of 24 is 0 or 2.
    const at::NoGradGuard no_gradient;
    const at::Tensor dense = model.find("classifier.dense.weight")->master,
                     out = model.find("classifier.out_proj.weight")->master;
    const at::Tensor before = dense.clone();
    dense.zero_();
    model.find("classifier.dense.bias")->master.fill_(100);  // tanh: 1, gelu: 100
    out.fill_(1);
    const double whole = logits(false)[0][0].item<double>(), dropped = logits(true)[0][0].item<double>();
    EXPECT_GT(std::abs(whole - dropped), 0.01 * whole) << family << ": after the layer";
    // Where the second sees the same whatever is dropped (its weights are 0 but for the bias) nothing is;
    // with the second dropout's units made equal to one sum, the first shows in the logits of its own
    // weights.
    dense.copy_(before * 20);
    model.find("classifier.dense.bias")->master.zero_();
    out.zero_();
    out.select(1, 0).fill_(1);
    std::set<double> seen;
    for (int64_t draw = 0; draw < 24; ++draw) {
      MicroBatch batch = batch_of({0, 7, 8, 2}, true);
      batch.packing = Packing::from_lengths({4}, {draw}, {draw}, {.seed = 7, .training = true});
      LossSink sink;
      sink.keep_outputs = true;
      model.forward({}, batch, {}, sink);
      seen.insert(sink.outputs().at("logits")[0][0].item<double>());
    }
    EXPECT_GT(seen.size(), 3u) << family
                               << ": one unit would be 0 or twice itself, were nothing dropped before";
  }
}

}  // namespace
}  // namespace funicular::model::family_tests
