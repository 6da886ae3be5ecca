// config.json: what transformers writes is understood, what does not fit is named.

#include "funicular/format/bert_config.h"

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
  return error_of([&] { parse_bert_config(json, "config.json"); });
}

TEST(BertConfig, TheFieldsOfAFileAreRead) {
  const Scratch scratch;
  scratch.put("config.json", kMiniLm);
  const BertConfig config = read_bert_config(scratch.path());
  EXPECT_EQ(config.hidden_size, 384);
  EXPECT_EQ(config.num_hidden_layers, 6);
  EXPECT_EQ(config.head_size(), 32);
  EXPECT_EQ(config.layer_norm_eps, 1e-12);
  EXPECT_EQ(config.architectures, std::vector<std::string>{"BertModel"});
  EXPECT_EQ(config.dtype, "float32");
  EXPECT_EQ(config.num_labels, 2);
  EXPECT_FALSE(config.classifier_dropout);
  EXPECT_EQ(config.classifier_dropout_probability(), 0.1);
}

TEST(BertConfig, WhatDoesNotFitIsRefusedByName) {
  const std::vector<std::tuple<const char*, Json, const char*>> cases = {
      {"model_type", "roberta", "expected \"bert\", found \"roberta\""},
      {"hidden_size", 385, "multiple of \"num_attention_heads\", found 385 and 12"},
      {"hidden_size", 384.5, "\"hidden_size\": expected an integer, found 384.5"},
      {"hidden_size", true, "expected an integer"},
      {"hidden_size", "384", "expected an integer"},
      {"hidden_size", -384, "found -384"},
      {"hidden_size", uint64_t{1} << 63, "expected an integer"},
      {"num_hidden_layers", 0, "\"num_hidden_layers\""},
      {"vocab_size", int64_t{1} << 40, "\"vocab_size\""},
      {"hidden_dropout_prob", 1.0, "a probability in [0, 1), found 1"},
      {"attention_probs_dropout_prob", -0.1, "a probability"},
      {"classifier_dropout", 2, "\"classifier_dropout\""},
      {"layer_norm_eps", 0, "\"layer_norm_eps\""},
      {"layer_norm_eps", "1e-12", "expected a number"},
      {"hidden_act", "gleu", "did you mean \"gelu\"?"},
      {"hidden_act", "mish", "expected one of gelu"},
      {"position_embedding_type", "relative_key", "relative positions are not supported"},
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

TEST(BertConfig, LabelsComeInTheOrderOfTheirIdsAndMustAgree) {
  Json json = parse_json(kMiniLm, "test");
  for (int id = 0; id < 12; ++id) json["id2label"][std::to_string(id)] = "name" + std::to_string(id);
  BertConfig config = parse_bert_config(json, "config.json");
  EXPECT_EQ(config.num_labels, 12);
  EXPECT_EQ(config.id2label[10], "name10");
  EXPECT_EQ(config.label_id("name11"), 11);
  EXPECT_EQ(config.label_id("none"), -1);
  json["label2id"] = {{"name3", 4}};
  EXPECT_NE(error_of([&] { parse_bert_config(json, "x"); }).find("\"label2id\" says 4 for \"name3\""),
            std::string::npos);
  config.num_labels = 3;
  EXPECT_NE(
      error_of([&] { bert_config_json(config); }).find("\"num_labels\" is 3, but \"id2label\" names 12"),
      std::string::npos);
}

TEST(BertConfig, WritingKeepsForeignKeysAndReadsBack) {
  const Scratch scratch;
  scratch.put("config.json", kMiniLm);
  BertConfig config = read_bert_config(scratch.path());
  config.id2label = {"no", "maybe", "yes"};
  config.num_labels = 3;
  config.problem_type = "single_label_classification";
  config.architectures = {"BertForSequenceClassification"};
  config.classifier_dropout = 0.25;
  write_bert_config(scratch / "out", config);
  const Json json = read_json(scratch / "out" / "config.json");
  EXPECT_EQ(json["gradient_checkpointing"], false);
  EXPECT_EQ(json["label2id"], (Json{{"no", 0}, {"maybe", 1}, {"yes", 2}}));
  EXPECT_FALSE(json.contains("torch_dtype"));
  EXPECT_EQ(json["dtype"], "float32");
  const BertConfig back = read_bert_config(scratch / "out" / "config.json");
  EXPECT_EQ(back.id2label, config.id2label);
  EXPECT_EQ(back.classifier_dropout, 0.25);
  EXPECT_EQ(bert_config_json(back), bert_config_json(config));
}

TEST(BertConfig, AMissingFileSaysWhatAModelIs) {
  const Scratch scratch;
  const std::string message = error_of([&] { read_bert_config(scratch.path()); });
  EXPECT_NE(message.find("a model is a folder with config.json"), message.npos) << message;
}

TEST(BertConfigFuzz, MutatedFilesAreReadOrRefused) {
  std::mt19937_64 random(7);
  size_t refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string text = mutate(kMiniLm, random);
    refused +=
        !error_of([&] { bert_config_json(parse_bert_config(parse_json(text, "fuzz"), "fuzz")); }).empty();
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_LT(refused, 4000u);
}

}  // namespace
}  // namespace funicular::format
