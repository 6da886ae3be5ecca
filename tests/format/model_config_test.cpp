// config.json: what transformers writes is understood, what does not fit is named.

#include "funicular/format/model_config.h"

#include <cmath>

#include "scratch.h"

namespace funicular::format {
namespace {

const char* const kMiniLm = R"({
  "_name_or_path": "nreimers/MiniLM", "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
  "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 384,
  "initializer_range": 0.02, "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
  "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 6, "pad_token_id": 0,
  "position_embedding_type": "absolute", "transformers_version": "4.8.2", "type_vocab_size": 2, "use_cache": true,
  "vocab_size": 30522, "torch_dtype": "float32"})";

std::string refusal(const char* key, const Json& value) {
  Json json = parse_json(kMiniLm, "test");
  json[key] = value;
  return error_of([&] { parse_model_config(json, "config.json"); });
}

TEST(ModelConfig, TheFieldsOfAFileAreRead) {
  const Scratch scratch;
  scratch.put("config.json", kMiniLm);
  const ModelConfig config = read_model_config(scratch.path());
  EXPECT_EQ(config.encoder.width, 384);
  EXPECT_EQ(config.encoder.layers, 6);
  EXPECT_EQ(config.encoder.head_size(), 32);
  EXPECT_EQ(config.encoder.norm.epsilon, 1e-12);
  EXPECT_EQ(config.architectures, std::vector<std::string>{"BertModel"});
  EXPECT_EQ(config.dtype, "float32");
  EXPECT_EQ(config.num_labels, 2);
  EXPECT_FALSE(config.classifier_dropout);
  EXPECT_EQ(config.classifier_dropout_probability(), 0.1);
}

TEST(ModelConfig, WhatDoesNotFitIsRefusedByName) {
  const std::vector<std::tuple<const char*, Json, const char*>> cases = {
      {"model_type", "xlnet",
       "expected one of bert, roberta, electra, distilbert, modernbert, xlm-roberta, camembert, ernie, "
       "mpnet, "
       "albert, deberta-v2, nomic_bert, gte, found "
       "\"xlnet\""},
      {"model_type", "Bert", "found \"Bert\""},
      {"hidden_size", 385, "multiple of \"num_attention_heads\", found 385 and 12"},
      {"hidden_size", 384.5, "\"hidden_size\": expected an integer, found 384.5"},
      {"hidden_size", true, "expected an integer"},
      {"hidden_size", "384", "expected an integer"},
      {"hidden_size", -384, "found -384"},
      {"hidden_size", uint64_t{1} << 63, "expected an integer"},
      {"num_hidden_layers", 0, "\"num_hidden_layers\""},
      {"vocab_size", int64_t{1} << 40, "\"vocab_size\""},
      {"vocab_size", (int64_t{1} << 31) - 1, "an integer from 1 to 16777216, found 2147483647"},
      {"num_hidden_layers", 1'000'000'000, "an integer from 1 to 1024, found 1000000000"},
      {"max_position_embeddings", (1 << 20) + 1, "an integer from 1 to 1048576, found 1048577"},
      {"type_vocab_size", (1 << 16) + 1, "an integer from 1 to 65536"},
      {"intermediate_size", (1 << 17) + 1, "an integer from 1 to 131072"},
      {"hidden_size", 12 * (1 << 14), "an integer from 1 to 16384"},
      {"num_attention_heads", (1 << 14) + 1, "an integer from 1 to 16384"},
      {"num_labels", (1 << 16) + 1, "at most 65536"},
      {"num_labels", (int64_t{1} << 32) + 4, "an integer of 32 bits, found 4294967300"},
      {"pad_token_id", (int64_t{1} << 32) + 4, "an integer of 32 bits, found 4294967300"},
      {"pad_token_id", -1, "an id of the vocabulary, found -1"},
      {"hidden_dropout_prob", 1.0, "a probability in [0, 1), found 1"},
      {"attention_probs_dropout_prob", -0.1, "a probability"},
      {"classifier_dropout", 2, "\"classifier_dropout\""},
      {"layer_norm_eps", 0, "a number above 0 and below 1, found 0"},
      {"layer_norm_eps", -1e-12, "a number above 0 and below 1, found -1e-12"},
      {"initializer_range", 1e30, "a number from 0 to 10, found 1e+30"},
      {"initializer_range", 10.5, "a number from 0 to 10, found 10.5"},
      {"initializer_range", -0.02, "a number from 0 to 10, found -0.02"},
      {"hidden_dropout_prob", 1e30, "a probability in [0, 1), found 1e+30"},
      {"layer_norm_eps", "1e-12", "expected a number"},
      {"hidden_act", "gleu", "did you mean \"gelu\"?"},
      {"hidden_act", "mish", "found \"mish\"; take a model with one of these"},
      {"position_embedding_type", "relative_key", "positions of this kind are not supported"},
      {"is_decoder", true, "decoders are not supported"},
      {"add_cross_attention", true, "decoders are not supported"},
      {"pruned_heads", Json{{"0", {1}}}, "pruned_heads"},
      {"pad_token_id", 30522, "an id of the vocabulary"},
      {"problem_type", "regresion", "did you mean \"regression\"?"},
      {"architectures", "BertModel", "a list of names"},
      {"id2label", Json{{"0", "a"}, {"2", "b"}}, "1 is missing"},
      {"id2label", Json::array({"a"}), "an object"},
      {"num_labels", 0, "at least 1"},
      {"tie_word_embeddings", 1, "true or false"},
  };
  for (const auto& [key, value, expected] : cases) {
    const std::string message = refusal(key, value);
    EXPECT_NE(message.find(expected), message.npos) << key << " = " << value << ": " << message;
    EXPECT_NE(message.find("config.json"), message.npos) << message;
  }
}

TEST(ModelConfig, NumbersThatAreNoneAreRefused) {
  const ModelConfig good;
  EXPECT_NO_THROW(check_model_config(good, "x"));
  using Field = double& (*)(EncoderSpec&);
  const Field fields[] = {[](EncoderSpec& e) -> double& { return e.initializer_range; },
                          [](EncoderSpec& e) -> double& { return e.norm.epsilon; },
                          [](EncoderSpec& e) -> double& { return e.dropouts.hidden; },
                          [](EncoderSpec& e) -> double& { return e.dropouts.attention; }};
  for (const Field field : fields)
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      ModelConfig config = good;
      field(config.encoder) = value;
      EXPECT_NE(error_of([&] { check_model_config(config, "x"); }), "") << value;
    }
}

TEST(ModelConfig, TheLargestSizesAreTaken) {
  Json json = parse_json(kMiniLm, "test");
  json["vocab_size"] = EncoderLimits::vocabulary;
  json["hidden_size"] = json["num_attention_heads"] = EncoderLimits::width;
  json["num_hidden_layers"] = EncoderLimits::layers;
  json["intermediate_size"] = EncoderLimits::feed_forward;
  json["max_position_embeddings"] = EncoderLimits::positions;
  json["type_vocab_size"] = EncoderLimits::token_types;
  json["num_labels"] = kMostLabels;
  json["initializer_range"] = EncoderLimits::initializer_range;
  EXPECT_EQ(parse_model_config(json, "config.json").encoder.layers, 1024);
}

// As transformers 5.23: id2label gives the names, and num_labels, where it differs, the number without names.
TEST(ModelConfig, LabelsComeInTheOrderOfTheirIdsWhateverTheOtherKeysSay) {
  Json json = parse_json(kMiniLm, "test");
  for (int id = 0; id < 12; ++id) json["id2label"][std::to_string(id)] = "name" + std::to_string(id);
  ModelConfig config = parse_model_config(json, "config.json");
  EXPECT_EQ(config.num_labels, 12);
  EXPECT_EQ(config.id2label[10], "name10");
  json["label2id"] = {{"LABEL_3", 3}, {"name3", "3"}, {"name5", 4}};
  EXPECT_EQ(parse_model_config(json, "x").id2label, config.id2label);
  json["num_labels"] = 3;
  EXPECT_EQ(parse_model_config(json, "x").num_labels, 3);
  EXPECT_TRUE(parse_model_config(json, "x").id2label.empty());
  json["id2label"].erase("7");
  EXPECT_NE(error_of([&] { parse_model_config(json, "x"); }).find("but 7 is missing"), std::string::npos);
  config.num_labels = 3;
  EXPECT_NE(
      error_of([&] { model_config_json(config); }).find("\"num_labels\" is 3, but \"id2label\" names 12"),
      std::string::npos);
}

TEST(ModelConfig, AsManyLabelsAsThereMayBeAreWrittenInTheirOrder) {
  ModelConfig config;
  config.num_labels = kMostLabels;
  const OrderedJson json = model_config_json(config);
  ASSERT_EQ(json["id2label"].size(), 65536u);
  EXPECT_EQ(std::prev(json["id2label"].end()).key(), "65535");
  EXPECT_EQ(json["label2id"]["LABEL_65535"], 65535);
  EXPECT_EQ(parse_model_config(parse_json(json.dump(), "back"), "back").id2label[300], "LABEL_300");
  config.id2label = {"same", "other", "same"};
  config.num_labels = 3;
  EXPECT_EQ(model_config_json(config)["label2id"], (OrderedJson{{"same", 2}, {"other", 1}}));
}

TEST(ModelConfig, WritingKeepsForeignKeysAndReadsBack) {
  const Scratch scratch;
  scratch.put("config.json", kMiniLm);
  ModelConfig config = read_model_config(scratch.path());
  config.id2label = {"no", "maybe", "yes"};
  config.num_labels = 3;
  config.problem_type = "single_label_classification";
  config.architectures = {"BertForSequenceClassification"};
  config.classifier_dropout = 0.25;
  write_model_config(scratch / "out", config);
  const Json json = read_json(scratch / "out" / "config.json");
  EXPECT_EQ(json["gradient_checkpointing"], false);
  EXPECT_EQ(json["label2id"], (Json{{"no", 0}, {"maybe", 1}, {"yes", 2}}));
  EXPECT_FALSE(json.contains("torch_dtype"));
  EXPECT_EQ(json["dtype"], "float32");
  const ModelConfig back = read_model_config(scratch / "out" / "config.json");
  EXPECT_EQ(back.id2label, config.id2label);
  EXPECT_EQ(back.classifier_dropout, 0.25);
  EXPECT_EQ(model_config_json(back), model_config_json(config));
}

TEST(ModelConfig, EveryFamilyHasItsOwnDefaultsAndIsWrittenAsItself) {
  const Scratch scratch;
  const auto read = [&](const char* text) {
    scratch.put("config.json", text);
    return read_model_config(scratch.path());
  };
  const ModelConfig roberta = read(R"({"model_type": "roberta", "max_position_embeddings": 514})");
  EXPECT_EQ(roberta.encoder.vocabulary, 50265);
  EXPECT_EQ(roberta.encoder.padding_id, 1);
  EXPECT_EQ(roberta.encoder.first_position(), 2);
  EXPECT_EQ(roberta.encoder.longest_sequence(), 512);
  EXPECT_FALSE(roberta.encoder.embedding_size);
  const ModelConfig electra = read(R"({"model_type": "electra", "embedding_size": 96})");
  EXPECT_EQ(electra.encoder.width, 256);
  EXPECT_EQ(electra.encoder.heads, 4);
  EXPECT_EQ(electra.encoder.feed_forward.width, 1024);
  EXPECT_EQ(electra.encoder.embedding_width(), 96);
  EXPECT_TRUE(electra.encoder.projects_embeddings());
  EXPECT_EQ(electra.encoder.longest_sequence(), 512);
  EXPECT_EQ(read(R"({"model_type": "electra"})").encoder.embedding_width(), 128);
  EXPECT_EQ(ModelConfig().encoder.embedding_width(), 768);
  const ModelConfig distilbert =
      read(R"({"model_type": "distilbert", "n_layers": 3, "dim": 96, "hidden_dim": 80,
      "n_heads": 8, "dropout": 0.3, "activation": "relu", "sinusoidal_pos_embds": true})");
  EXPECT_EQ(distilbert.encoder.layers, 3);
  EXPECT_EQ(distilbert.encoder.width, 96);
  EXPECT_EQ(distilbert.encoder.feed_forward.width, 80);
  EXPECT_EQ(distilbert.encoder.heads, 8);
  EXPECT_EQ(distilbert.encoder.token_types, 0);
  EXPECT_EQ(distilbert.encoder.activation, "relu");
  EXPECT_TRUE(distilbert.encoder.positions.waves);
  EXPECT_EQ(distilbert.encoder.dropouts.hidden, 0.3);
  EXPECT_EQ(distilbert.encoder.dropouts.of_attention_output(), 0) << "what attention adds is not dropped";
  EXPECT_EQ(distilbert.classifier_dropout_probability(), 0.2);
  EXPECT_EQ(default_config("distilbert").encoder.layers, 6);
  for (const ModelConfig& config : {roberta, electra, distilbert, ModelConfig()}) {
    write_model_config(scratch / "out", config);
    const ModelConfig back = read_model_config(scratch / "out");
    EXPECT_EQ(back.model_type, config.model_type);
    EXPECT_EQ(back.encoder, config.encoder);
    EXPECT_EQ(back.classifier_dropout, config.classifier_dropout);
  }
}

/// The window of each layer of a ModernBERT, -1 where all tokens see each other, and the bases of their positions.
std::string attention_of(const ModelConfig& config) {
  std::string all;
  for (const LayerAttention& layer : config.encoder.attention)
    all += std::to_string(layer.window.value_or(-1)) + "/" +
           std::to_string(static_cast<int>(layer.rotary_base)) + " ";
  return all;
}

TEST(ModelConfig, ModernBertsKeysOfBothGenerationsAreRead) {
  const auto read = [](const std::string& keys) {
    const std::string text = R"({"model_type": "modernbert", "num_hidden_layers": 4)" + keys + "}";
    return parse_model_config(parse_json(text, "test"), "config.json");
  };
  EXPECT_EQ(attention_of(read("")), "-1/160000 64/10000 64/10000 -1/160000 ");
  EXPECT_EQ(attention_of(
                read(R"(, "global_attn_every_n_layers": 2, "global_rope_theta": 500, "local_attention": 9)")),
            "-1/500 4/10000 -1/500 4/10000 ");
  EXPECT_EQ(attention_of(read(R"(, "local_rope_theta": null)")), "-1/160000 64/160000 64/160000 -1/160000 ");
  const std::string newer =
      R"(, "rope_parameters": {"full_attention": {"rope_theta": 7, "rope_type": "default"}}, "global_rope_theta": 500,
         "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"])";
  EXPECT_EQ(attention_of(read(newer)), "64/10000 -1/7 -1/7 64/10000 ");
  for (const std::string& keys :
       {std::string(), newer, std::string(R"(, "classifier_pooling": "mean", "mlp_dropout": 0.2,
           "attention_dropout": 0.3, "norm_bias": true, "local_attention": 1)")}) {
    const ModelConfig config = read(keys);
    const Json written = Json::parse(model_config_json(config).dump());
    const ModelConfig back = parse_model_config(written, "written");
    EXPECT_EQ(back.encoder, config.encoder) << keys;
    EXPECT_EQ(back.classifies_mean, config.classifies_mean);
  }
}

TEST(ModelConfig, ModernBertsThatAreComputedOtherwiseAreRefused) {
  const auto message = [](const std::string& keys) {
    const std::string text = R"({"model_type": "modernbert")" + keys + "}";
    return error_of([&] { parse_model_config(parse_json(text, "test"), "config.json"); });
  };
  const std::pair<const char*, const char*> cases[] = {
      {R"(, "rope_scaling": {"factor": 2})",
       "scaled rotary positions are not supported; take a model without them"},
      {R"(, "rope_parameters": {"full_attention": {"rope_type": "yarn"}})",
       "found \"yarn\": scaled rotary positions are not supported; take a model without them"},
      {R"(, "layer_types": ["full_attention"])", "a list of 22 types"},
      {R"(, "num_hidden_layers": 1, "layer_types": ["linear"])", "found \"linear\""},
      {R"(, "classifier_pooling": "max")", "\"cls\" or \"mean\""},
      {R"(, "num_hidden_layers": 1, "layer_types": ["full_attention", "full_attention"])",
       "a list of 1 types, one for each layer, found 2"},
      {R"(, "classifier_activation": "swish")", "found \"swish\""},
      {R"(, "local_attention": 0)", "an integer of at least 1"},
      {R"(, "hidden_size": 36, "num_attention_heads": 12)", "an even number, for rotary positions, found 3"},
      {R"(, "hidden_size": 36, "num_attention_heads": 12)", "\"hidden_size\" / \"num_attention_heads\""},
      {R"(, "rope_parameters": {"full_attention": {"type": "linear", "factor": 2}})", "found \"linear\""},
      {R"(, "rope_parameters": {"sliding_attention": {"rope_type": null}})", "found null"},
      {R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 500})", "found \"rope_theta\""},
      {R"(, "rope_parameters": {"full_attention": {"rope_theta": null}})", "a number as \"rope_theta\""},
      {R"(, "global_attn_every_n_layers": null)", "an integer of at least 1, or \"layer_types\", found null"},
      {R"(, "sliding_window": 3)", "expected none, or 64, which is half of \"local_attention\", found 3"},
      {R"(, "head_dim": 32)", "expected 64, which is \"hidden_size\" / \"num_attention_heads\", found 32"},
      {R"(, "initializer_cutoff_factor": 1e-7)", "expected a number of at least 0.5, found 1e-07"},
      {R"(, "initializer_cutoff_factor": 0)", "expected a number of at least 0.5, found 0"},
      {R"(, "initializer_cutoff_factor": -2)", "expected a number of at least 0.5, found -2"}};
  for (const auto& [keys, expected] : cases)
    EXPECT_NE(message(keys).find(expected), std::string::npos) << message(keys);
  for (const auto& [type, instead] : {std::pair("eurobert", "take mmBERT, a modernbert"),
                                      {"neobert", "take ModernBERT or Ettin, both modernbert"}}) {
    const Json json = {{"model_type", type}};
    const std::string said = error_of([&] { parse_model_config(json, "config.json"); });
    EXPECT_NE(said.find(instead), std::string::npos) << said;
    EXPECT_NE(said.find("found \"" + std::string(type) + "\""), std::string::npos) << said;
  }
}

TEST(ModelConfig, AlbertsGroupsAndMpnetsBucketsAreReadAndWritten) {
  const auto read = [](const std::string& keys) { return parse_model_config(parse_json(keys, "t"), "c"); };
  const ModelConfig albert = read(R"({"model_type": "albert", "hidden_size": 96, "num_attention_heads": 4,
      "intermediate_size": 80, "embedding_size": 96, "num_hidden_layers": 6, "num_hidden_groups": 3,
      "classifier_dropout_prob": 0.2, "inner_group_num": 1})");
  EXPECT_EQ(albert.encoder.distinct_layers(), 3);
  EXPECT_EQ(albert.encoder.weights_of(1), 0);
  EXPECT_EQ(albert.encoder.weights_of(2), 1);
  EXPECT_EQ(albert.encoder.weights_of(5), 2);
  EXPECT_TRUE(albert.encoder.projects_embeddings()) << "whatever the widths";
  EXPECT_EQ(albert.encoder.dropouts.of_feed_forward_output(), 0);
  EXPECT_EQ(albert.classifier_dropout_probability(), 0.2);
  const ModelConfig mpnet = read(R"({"model_type": "mpnet", "classifier_dropout": 0.5})");
  EXPECT_EQ(mpnet.encoder.positions.relative->buckets, 32);
  EXPECT_EQ(mpnet.encoder.longest_sequence(), 510);
  EXPECT_EQ(mpnet.classifier_dropout_probability(), 0.1) << "transformers' MPNet has no such key";
  for (const ModelConfig& config : {albert, mpnet}) {
    const ModelConfig again = parse_model_config(Json::parse(model_config_json(config).dump()), "again");
    EXPECT_EQ(again.encoder, config.encoder) << config.model_type;
  }
  EXPECT_EQ(model_config_json(mpnet)["relative_attention_num_buckets"], 32);
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"model_type": "albert", "num_hidden_groups": 5})",
       "expected a divisor of \"num_hidden_layers\", which is 12"},
      {R"({"model_type": "albert", "inner_group_num": 2})", "\"inner_group_num\": expected 1, found 2"},
      {R"({"model_type": "mpnet", "relative_attention_num_buckets": 16})",
       "expected 32, which transformers takes"},
      {R"({"model_type": "mpnet", "pad_token_id": 0})",
       "\"pad_token_id\": expected 1, which transformers takes"}};
  for (const auto& [keys, expected] : cases)
    EXPECT_NE(error_of([&] { read(keys); }).find(expected), std::string::npos) << keys;
}

TEST(ModelConfig, DebertasOfTheThirdVersionAreReadAndOthersRefused) {
  const std::string v3 = R"({"model_type": "deberta-v2", "hidden_size": 768, "num_attention_heads": 12,
      "relative_attention": true, "share_att_key": true, "norm_rel_ebd": "layer_norm", "position_buckets": 256,
      "max_relative_positions": -1, "pos_att_type": "p2c|c2p", "position_biased_input": false)";
  const auto read = [&](const std::string& more) {
    return parse_model_config(parse_json(v3 + more + "}", "t"), "c");
  };
  const ModelConfig config = read("");
  EXPECT_EQ(config.encoder.positions.relative,
            (RelativePositions{RelativePositions::Kind::disentangled, 512, 512}));
  EXPECT_FALSE(config.encoder.positions.table);
  EXPECT_EQ(config.encoder.token_types, 0);
  EXPECT_EQ(config.encoder.norm.epsilon, 1e-7);
  EXPECT_EQ(read(R"(, "cls_dropout": 0.3)").classifier_dropout_probability(), 0.3);
  EXPECT_EQ(read(R"(, "pos_att_type": ["c2p", "p2c"])").encoder, config.encoder);
  const ModelConfig own =
      read(R"(, "type_vocab_size": 2, "max_relative_positions": 300, "position_biased_input": true)");
  for (const ModelConfig& one : {config, own, default_config("deberta-v2")})
    EXPECT_EQ(parse_model_config(Json::parse(model_config_json(one).dump()), "again").encoder, one.encoder);
  ModelConfig narrow = read(R"(, "attention_head_size": 64)");
  narrow.encoder.width = 384;
  EXPECT_EQ(parse_model_config(Json::parse(model_config_json(narrow).dump()), "student").encoder,
            narrow.encoder);
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"(, "max_relative_positions": 129)", "\"max_relative_positions\": expected at least 130"},
      {R"(, "relative_attention": false)", "\"relative_attention\": expected true, found false"},
      {R"(, "share_att_key": null)", "\"share_att_key\": expected true, found false"},
      {R"(, "pos_att_type": "c2p")", "\"pos_att_type\": expected \"p2c\" and \"c2p\", found \"c2p\""},
      {R"(, "conv_kernel_size": 3)", "\"conv_kernel_size\": expected 0, found 3"},
      {R"(, "pooler_hidden_act": "tanh")", "\"pooler_hidden_act\": expected \"gelu\", found \"tanh\""},
      {R"(, "position_buckets": -1)",
       "\"position_buckets\": expected an even number of at least 4, found -1"},
      {R"(, "legacy": false)", "\"legacy\": expected true, found false"}};
  for (const auto& [keys, expected] : cases)
    EXPECT_NE(error_of([&] { read(keys); }).find(expected), std::string::npos) << keys;
}

ModelConfig config_of_text(const std::string& text) {
  return parse_model_config(parse_json(text, "t"), "c");
}

/// The defaults are those of transformers 5.23.
TEST(ModelConfig, NomicBertsAndGtesAreReadAndWritten) {
  const ModelConfig nomic = config_of_text(R"({"model_type": "nomic_bert"})"),
                    gte = config_of_text(R"({"model_type": "gte"})");
  EXPECT_EQ(attention_of(nomic).substr(0, 16), "-1/1000 -1/1000 ");
  EXPECT_EQ(attention_of(gte).substr(0, 20), "-1/160000 -1/160000 ");
  EXPECT_EQ(nomic.encoder.activation, "silu");
  EXPECT_EQ(nomic.encoder.vocabulary, 30528);
  EXPECT_EQ(nomic.encoder.longest_sequence(), 2048);
  EXPECT_EQ(nomic.encoder.dropouts.hidden, 0);
  EXPECT_EQ(gte.encoder.vocabulary, 250048);
  EXPECT_EQ(gte.encoder.longest_sequence(), 8192);
  EXPECT_EQ(gte.encoder.padding_id, 1);
  EXPECT_EQ(gte.encoder.dropouts.attention, 0);
  EXPECT_EQ(gte.encoder.dropouts.feed_forward, 0.1);
  ModelConfig other =
      config_of_text(R"({"model_type": "gte", "type_vocab_size": 0, "hidden_dropout_prob": 0.3,
      "head_dim": 64, "rope_parameters": {"rope_theta": 500, "rope_type": "default"}, "rope_theta": 7})");
  EXPECT_EQ(attention_of(other).substr(0, 14), "-1/500 -1/500 ") << "rope_parameters decide";
  EXPECT_EQ(other.encoder.token_types, 0);
  EXPECT_EQ(other.encoder.dropouts.feed_forward, 0.3);
  other.encoder.width = 384;
  const ModelConfig beside =
      config_of_text(R"({"model_type": "nomic_bert", "rope_theta": 300, "position_embedding_type": "rope",
                         "hidden_size": 120, "n_embd": 1, "prenorm": true})");
  EXPECT_EQ(attention_of(beside).substr(0, 14), "-1/300 -1/300 ");
  EXPECT_EQ(beside.encoder.width, 120) << "transformers 5 ignores older keys beside its own";
  for (const ModelConfig& one : {nomic, gte, other, beside})
    EXPECT_EQ(parse_model_config(Json::parse(model_config_json(one).dump()), "again").encoder, one.encoder);
}

TEST(ModelConfig, NomicBertsAndGtesThatAreComputedOtherwiseAreRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("rope_scaling": {"factor": 8.0, "type": "ntk"})",
       "\"rope_scaling\": expected \"rope_theta\" and the \"rope_type\" \"default\" only, found \"factor\": "
       "8.0"},
      {R"("rope_parameters": {"rope_type": "dynamic", "factor": 2})",
       "scaled rotary positions are not supported; take a model without them. The type \"dynamic\""},
      {R"("rope_parameters": {"type": "linear"})", "found \"type\": \"linear\""},
      {R"("rope_parameters": {"full_attention": {"rope_theta": 7}})", "found \"full_attention\""},
      {R"("rope_parameters": {"rope_theta": null})", "a number as \"rope_theta\""},
      {R"("rope_parameters": 7)", "an object with \"rope_theta\""},
      {R"("rope_parameters": {"partial_rotary_factor": 0.5})", "\"partial_rotary_factor\": expected 1"},
      {R"("partial_rotary_factor": 0.5)", "\"partial_rotary_factor\": expected 1"},
      {R"("rope_theta": null)", "\"rope_theta\": expected a number"},
      {R"("rope_theta": 0)", "\"rope_theta\": expected a number of at least 1, found 0"},
      {R"("head_dim": 32)", "\"head_dim\": expected 64"},
      {R"("hidden_size": 36)", "an even number, for rotary positions, found 3"},
      {R"("hidden_act": "glu")", "found \"glu\""},
      {R"("type_vocab_size": -1)", "\"type_vocab_size\""}};
  for (const char* const type : {"nomic_bert", "gte"})
    for (const auto& [keys, expected] : cases) {
      const std::string message = error_of([&] {
        config_of_text(std::string(R"({"model_type": ")") + type + R"(", "num_hidden_layers": 2, )" + keys +
                       "}");
      });
      EXPECT_NE(message.find(expected), std::string::npos) << type << ": " << message;
    }
  EXPECT_NE(error_of([] {
              config_of_text(R"({"model_type": "nomic_bert", "type_vocab_size": 0})");
            }).find("\"type_vocab_size\""),
            std::string::npos)
      << "transformers cannot run it";
}

/// A file of the authors' own program, without its end.
constexpr const char* kContrastors = R"({"model_type": "nomic_bert", "architectures": ["NomicBertModel"],
    "n_embd": 96, "n_layer": 3, "n_head": 4, "n_inner": 300, "n_positions": 512, "vocab_size": 30522,
    "pad_vocab_size_multiple": 64, "activation_function": "geglu", "layer_norm_epsilon": 1e-6, "resid_pdrop": 0.2,
    "attn_pdrop": 0.3, "rotary_emb_base": 700, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false,
    "rotary_emb_scale_base": null, "rotary_scaling_factor": null, "prenorm": false, "parallel_block": false,
    "qkv_proj_bias": false, "mlp_fc1_bias": false, "mlp_fc2_bias": false, "use_rms_norm": false, "causal": false,
    "max_trained_positions": 64, "use_flash_attn": true, "auto_map": {"AutoModel": "x--y.Z"})";

TEST(ModelConfig, NomicBertsOfTheirOwnProgramAreReadAndWrittenForTransformers) {
  const auto read = [](const std::string& more) { return config_of_text(kContrastors + more + "}"); };
  const ModelConfig config = read("");
  const EncoderSpec& encoder = config.encoder;
  EXPECT_EQ(encoder.width, 96);
  EXPECT_EQ(encoder.layers, 3);
  EXPECT_EQ(encoder.heads, 4);
  EXPECT_EQ(encoder.feed_forward.width, 512) << "the program rounds up to multiples of 256";
  EXPECT_EQ(encoder.vocabulary, 30528);
  EXPECT_EQ(encoder.longest_sequence(), 512);
  EXPECT_EQ(encoder.activation, "gelu");
  EXPECT_EQ(encoder.norm.epsilon, 1e-6);
  EXPECT_EQ(encoder.dropouts.hidden, 0.2);
  EXPECT_EQ(encoder.dropouts.attention, 0.3);
  EXPECT_EQ(attention_of(config), "-1/700 -1/700 -1/700 ");
  const Json written = Json::parse(model_config_json(config).dump());
  EXPECT_EQ(parse_model_config(written, "again").encoder, encoder);
  for (const char* const key : {"n_embd", "n_inner", "rotary_emb_base", "use_flash_attn", "auto_map"})
    EXPECT_FALSE(written.contains(key)) << key;
  EXPECT_EQ(read(R"(, "activation_function": "swiglu")").encoder.activation, "silu");
  EXPECT_EQ(config.classifier_dropout, 0.1) << "the program takes embd_pdrop, by default GPT-2's";
  EXPECT_EQ(read(R"(, "embd_pdrop": 0.4)").classifier_dropout, 0.4);
  EXPECT_EQ(read(R"(, "embd_pdrop": 0.4, "classifier_dropout": 0.3)").classifier_dropout, 0.3);
  const std::pair<const char*, const char*> cases[] = {
      {R"(, "prenorm": true)", "\"prenorm\": expected false, found true"},
      {R"(, "parallel_block": true)", "\"parallel_block\""},
      {R"(, "use_rms_norm": true)", "\"use_rms_norm\""},
      {R"(, "causal": true)", "\"causal\""},
      {R"(, "norm_mlp": true)", "\"norm_mlp\""},
      {R"(, "rotary_head_dim": true)", "\"rotary_head_dim\""},
      {R"(, "qkv_proj_bias": true)", "\"qkv_proj_bias\""},
      {R"(, "mlp_fc1_bias": true)", "\"mlp_fc1_bias\""},
      {R"(, "rotary_emb_fraction": 0.5)", "\"rotary_emb_fraction\": expected 1, found 0.5"},
      {R"(, "rotary_emb_interleaved": true)", "\"rotary_emb_interleaved\""},
      {R"(, "rotary_scaling_factor": 2)", "\"rotary_scaling_factor\": expected null, found 2"},
      {R"(, "moe_every_n_layers": 2)", "\"moe_every_n_layers\": expected 0, found 2"},
      {R"(, "activation_function": "gelu")", "expected \"swiglu\" or \"geglu\", found \"gelu\""},
      {R"(, "n_inner": -1)", "\"n_inner\": expected an integer from 0 to"}};
  for (const auto& [keys, expected] : cases)
    EXPECT_NE(error_of([&] { read(keys); }).find(expected), std::string::npos) << keys;
  EXPECT_NE(error_of([] {
              config_of_text(R"({"model_type": "nomic_bert", "n_embd": 96, "rotary_emb_fraction": 1})");
            }).find("\"qkv_proj_bias\": expected false, found true, the default"),
            std::string::npos);
}

TEST(ModelConfig, GtesOfTheirOwnProgramAreReadAndWrittenForTransformers) {
  const std::string begin = R"({"model_type": "new", "hidden_size": 96, "num_attention_heads": 4,
      "num_hidden_layers": 2, "intermediate_size": 80, "architectures": ["NewForSequenceClassification"])";
  const auto read = [&](const std::string& more) { return config_of_text(begin + more + "}"); };
  const ModelConfig config = read(R"(, "pack_qkv": true, "rope_theta": 500000, "pad_token_id": 3,
      "position_embedding_type": "rope", "layer_norm_type": "layer_norm", "auto_map": {}, "rope_scaling": null)");
  EXPECT_EQ(config.model_type, "gte");
  EXPECT_EQ(attention_of(config), "-1/500000 -1/500000 ");
  EXPECT_EQ(config.architectures, std::vector<std::string>{"GteForSequenceClassification"});
  const Json written = Json::parse(model_config_json(config).dump());
  EXPECT_EQ(written["model_type"], "gte");
  for (const char* const key : {"pack_qkv", "auto_map", "position_embedding_type"})
    EXPECT_FALSE(written.contains(key)) << key;
  EXPECT_EQ(parse_model_config(written, "again").encoder, config.encoder);
  const EncoderSpec plain = read("").encoder;
  EXPECT_EQ(plain.vocabulary, 30528) << "the program's defaults";
  EXPECT_EQ(plain.longest_sequence(), 2048);
  EXPECT_EQ(plain.padding_id, 0);
  EXPECT_EQ(plain.attention_of(1).rotary_base, 10000);
  const std::pair<const char*, const char*> cases[] = {
      {R"(, "rope_scaling": {"factor": 8.0, "type": "ntk"})", "found \"factor\": 8.0"},
      {R"(, "position_embedding_type": "absolute")", "\"position_embedding_type\": expected \"rope\""},
      {R"(, "layer_norm_type": "rms_norm")", "\"layer_norm_type\": expected \"layer_norm\""},
      {R"(, "logn_attention_scale": true)", "\"logn_attention_scale\": expected false"}};
  for (const auto& [keys, expected] : cases)
    EXPECT_NE(error_of([&] { read(keys); }).find(expected), std::string::npos) << keys;
  EXPECT_NE(error_of([] {
              config_of_text(R"({"model_type": "gte", "logn_attention_scale": true})");
            }).find("\"logn_attention_scale\""),
            std::string::npos)
      << "transformers ignores it";
  const ModelConfig scaled = config_of_text(R"({"model_type": "gte", "num_hidden_layers": 2, "rope_theta": 9,
      "rope_scaling": {"rope_type": "default", "rope_theta": 33}})");
  EXPECT_EQ(attention_of(scaled), "-1/33 -1/33 ") << "as transformers reads it";
}

TEST(ModelConfig, ModernBertsKeysThatSayTheSameTwiceAreRead) {
  const auto read = [](const std::string& keys) {
    const std::string text = R"({"model_type": "modernbert", "num_hidden_layers": 2)" + keys + "}";
    return parse_model_config(parse_json(text, "test"), "config.json");
  };
  const ModelConfig twice = read(R"(, "sliding_window": 3, "local_attention": 6, "head_dim": 64,
      "rope_parameters": {"full_attention": {"type": "default", "rope_theta": 7}, "sliding_attention": null})");
  EXPECT_EQ(attention_of(twice), "-1/7 3/10000 ");
  ModelConfig narrow = twice;
  narrow.encoder.width = 384;
  narrow.encoder.attention[1].window = 5;
  const ModelConfig back = parse_model_config(Json::parse(model_config_json(narrow).dump()), "written");
  EXPECT_EQ(back.encoder, narrow.encoder) << "head_dim and sliding_window are written anew";
  EXPECT_EQ(read(R"(, "initializer_cutoff_factor": null)").encoder.initializer_cutoff, 3);
  EXPECT_EQ(read("").encoder.initializer_cutoff, 2);
}

TEST(ModelConfig, TheHeadOfAModernBertIsReadAndWritten) {
  const ModelConfig config = parse_model_config(
      parse_json(R"({"model_type": "modernbert", "classifier_activation": "silu", "decoder_bias": false})",
                 "test"),
      "config.json");
  EXPECT_EQ(config.head_activation, "silu");
  EXPECT_FALSE(config.decoder_bias);
  const ModelConfig back = parse_model_config(Json::parse(model_config_json(config).dump()), "written");
  EXPECT_EQ(back.head_activation, "silu");
  EXPECT_FALSE(back.decoder_bias);
}

TEST(ModelConfig, NewLayersContinueThePeriodOfTheirAttention) {
  ModelConfig config = default_config("modernbert");  // every third layer sees all tokens
  config.encoder.set_layers(4);
  config.encoder.set_layers(7);
  EXPECT_EQ(attention_of(config), "-1/160000 64/10000 64/10000 -1/160000 64/10000 64/10000 -1/160000 ");
  EXPECT_EQ(Json::parse(model_config_json(config).dump())["global_attn_every_n_layers"], 3);
  ModelConfig bert;
  bert.encoder.set_layers(20);
  EXPECT_TRUE(bert.encoder.attention.empty());
}

TEST(ModelConfig, CutoffsThatRejectNearlyAllAreRefused) {
  ModelConfig config = default_config("modernbert");
  config.encoder.initializer_cutoff = 1e-7;
  EXPECT_NE(error_of([&] { check_model_config(config, "x"); }).find("expected a cutoff of new weights"),
            std::string::npos);
}

TEST(ModelConfig, WhatDoesNotFitAFamilyIsRefused) {
  const auto message = [](const char* text) {
    return error_of([&] { parse_model_config(parse_json(text, "test"), "config.json"); });
  };
  EXPECT_NE(message(R"({"model_type": "roberta", "max_position_embeddings": 2})")
                .find("more than the 2 rows that come before a first token's, found 2"),
            std::string::npos);
  EXPECT_NE(message(R"({"model_type": "electra", "embedding_size": 0})")
                .find("\"embedding_size\": expected an integer"),
            std::string::npos);
  ModelConfig narrow;
  narrow.encoder.embedding_size = 64;
  EXPECT_NE(error_of([&] { check_model_config(narrow, "x"); }).find("a bert has embeddings of hidden_size"),
            std::string::npos);
  EXPECT_NE(error_of([] { default_config("xlnet"); }).find("one of the families bert, roberta, electra"),
            std::string::npos);
}

TEST(ModelConfig, AMissingFileSaysWhatAModelIs) {
  const Scratch scratch;
  const std::string message = error_of([&] { read_model_config(scratch.path()); });
  EXPECT_NE(message.find("a model is a folder with config.json"), message.npos) << message;
}

TEST(ModelConfigFuzz, MutatedFilesAreReadOrRefused) {
  std::mt19937_64 random(7);
  size_t refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string text = mutate(kMiniLm, random);
    refused +=
        !error_of([&] { model_config_json(parse_model_config(parse_json(text, "fuzz"), "fuzz")); }).empty();
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_LT(refused, 4000u);
}

TEST(ModelConfigFuzz, AValueOfAnyKindIsTakenWithinItsLimitsOrRefused) {
  std::mt19937_64 random(11);
  const Json whole = parse_json(kMiniLm, "test");
  std::vector<std::string> keys = {"num_labels", "id2label", "label2id", "classifier_dropout",
                                   "problem_type"};
  for (const auto& [key, value] : whole.items()) keys.push_back(key);
  size_t taken = 0;
  for (int round = 0; round < 2000; ++round) {
    Json json = whole;
    for (int changes = 1 + round % 2; changes > 0; --changes)
      json[keys[random() % keys.size()]] = strange_value(random);
    ModelConfig config;
    if (!error_of([&] { config = parse_model_config(parse_json(json.dump(), "fuzz"), "fuzz"); }).empty())
      continue;
    ++taken;
    // What was taken is within bounds, and is written and read as the same.
    EXPECT_LE(config.encoder.vocabulary * config.encoder.width, int64_t{1} << 38) << json;
    EXPECT_LE(config.encoder.layers, 1024) << json;
    EXPECT_GE(config.num_labels, 1) << json;
    EXPECT_LT(config.encoder.padding_id, config.encoder.vocabulary) << json;
    EXPECT_TRUE(config.encoder.initializer_range >= 0 && config.encoder.initializer_range <= 10) << json;
    const Json back = parse_json(model_config_json(config).dump(), "back");
    EXPECT_EQ(parse_model_config(back, "back").encoder.padding_id, config.encoder.padding_id) << json;
  }
  EXPECT_GT(taken, 100u);
  EXPECT_LT(taken, 1500u);
}

}  // namespace
}  // namespace funicular::format
