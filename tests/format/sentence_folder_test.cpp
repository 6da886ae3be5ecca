// Claims about folders of sentence-transformers: both forms are read as the same modules, one form is written, and
// what cannot be read is named.

#include "funicular/format/sentence_folder.h"

#include <map>
#include <tuple>

#include "scratch.h"
#include "tests/fuzz_rounds.h"

namespace funicular::format {
namespace {

using Kind = SentenceStep::Kind;

const char* const kModules = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
  {"idx": 3, "name": "3", "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}])";

/// The files of a folder, by name.
using Files = std::map<std::string, std::string>;

Files old_form() {
  return {
      {"modules.json", kModules},
      {"sentence_bert_config.json", R"({"max_seq_length": 256, "do_lower_case": true})"},
      {"1_Pooling/config.json",
       R"({"word_embedding_dimension": 8, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true,
               "pooling_mode_max_tokens": false, "pooling_mode_mean_sqrt_len_tokens": false, "include_prompt": false})"},
      {"2_Dense/config.json",
       R"({"in_features": 16, "out_features": 4, "bias": false,
               "activation_function": "torch.nn.modules.linear.Identity"})"},
      {"config_sentence_transformers.json",
       R"({"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "query",
               "similarity_fn_name": "dot", "truncate_dim": 3})"}};
}

Files new_form() {
  Files files = old_form();
  std::string& modules = files["modules.json"];
  for (const auto& [from, to] : {std::pair{"sentence_transformers.models.Transformer",
                                           "sentence_transformers.base.modules.transformer.Transformer"},
                                 {"sentence_transformers.models.Pooling",
                                  "sentence_transformers.sentence_transformer.modules.pooling.Pooling"}})
    modules.replace(modules.find(from), std::string(from).size(), to);
  files["sentence_bert_config.json"] =
      R"({"transformer_task": "feature-extraction", "modality_config": {}, "do_lower_case": true})";
  files["tokenizer_config.json"] = R"({"model_max_length": 256})";
  files["1_Pooling/config.json"] =
      R"({"embedding_dimension": 8, "pooling_mode": ["cls", "mean"], "include_prompt": false})";
  files["2_Dense/config.json"] =
      R"({"in_features": 16, "out_features": 4, "bias": false, "use_residual": false,
          "activation_function": "torch.nn.modules.linear.Identity", "module_input_name": "sentence_embedding",
          "module_output_name": "sentence_embedding"})";
  return files;
}

void put(const Scratch& scratch, const Files& files) {
  for (const auto& [name, text] : files) {
    fs::create_directories((scratch.path() / name).parent_path());
    scratch.put(name, text);
  }
}

void expect_modules(const SentenceFolder& read) {
  EXPECT_EQ(read.max_length, 256);
  EXPECT_TRUE(read.lower_case);
  EXPECT_EQ(read.width, 8);
  EXPECT_EQ(read.poolings, (std::vector{Pooling::cls, Pooling::mean}));
  EXPECT_FALSE(read.include_prompt);
  ASSERT_EQ(read.steps.size(), 2u);
  EXPECT_EQ(read.steps[0].kind, Kind::dense);
  EXPECT_EQ(read.steps[0].inputs, 16);
  EXPECT_EQ(read.steps[0].outputs, 4);
  EXPECT_FALSE(read.steps[0].bias);
  EXPECT_EQ(read.steps[0].activation, "identity");
  EXPECT_EQ(read.steps[0].folder, "2_Dense");
  EXPECT_EQ(read.steps[1].kind, Kind::normalise);
  EXPECT_EQ(read.steps.back().kind, SentenceStep::Kind::normalise);
  EXPECT_EQ(read.prompts, (std::map<std::string, std::string>{{"document", ""}, {"query", "q: "}}));
  EXPECT_EQ(read.default_prompt, "query");
  EXPECT_EQ(read.similarity, "dot");
  EXPECT_EQ(read.truncate_dim, 3);
  EXPECT_EQ(read.vector_width(8), 4);
}

TEST(SentenceFolder, BothFormsAreReadAsTheSameModules) {
  for (const Files& files : {old_form(), new_form()}) {
    const Scratch scratch;
    put(scratch, files);
    expect_modules(read_sentence_folder(scratch.path()));
  }
}

TEST(SentenceFolder, AWrittenFolderIsReadAsItWas) {
  const Scratch scratch, other;
  put(scratch, new_form());
  SentenceFolder modules = read_sentence_folder(scratch.path());
  write_sentence_folder(modules, other.path() / "model");
  expect_modules(read_sentence_folder(other.path() / "model"));
}

TEST(SentenceFolder, TheOldFormAloneIsWritten) {
  const Scratch scratch, other;
  put(scratch, new_form());
  SentenceFolder modules = read_sentence_folder(scratch.path());
  write_sentence_folder(modules, other.path());
  const Json pooling = read_json(other / "1_Pooling/config.json");
  EXPECT_TRUE(pooling.contains("pooling_mode_cls_token") && pooling.contains("word_embedding_dimension"));
  EXPECT_FALSE(pooling.contains("pooling_mode") || pooling.contains("embedding_dimension"));
  EXPECT_EQ(read_json(other / "sentence_bert_config.json")["max_seq_length"], 256);
  EXPECT_EQ(read_json(other / "modules.json")[1]["type"], "sentence_transformers.models.Pooling");
}

TEST(SentenceFolder, PoolingsThatTheOldFormCannotOrderAreRefused) {
  const Scratch scratch;
  SentenceFolder modules;
  modules.poolings = {Pooling::mean, Pooling::cls};
  EXPECT_NE(
      error_of([&] { write_sentence_folder(modules, scratch.path()); }).find("expected the order cls, max"),
      std::string::npos);
  modules.poolings = {Pooling::mean, Pooling::mean};
  EXPECT_NE(error_of([&] { write_sentence_folder(modules, scratch.path()); }), "");
}

TEST(SentenceFolder, AnOldFolderOfThreeBooleansAndAnOlderNameOfTheTransformerIsRead) {
  const Scratch scratch;
  Files files = old_form();
  files.erase("sentence_bert_config.json");
  files.erase("config_sentence_transformers.json");
  files["0_RoBERTa/sentence_roberta_config.json"] = R"({"max_seq_length": 75})";
  files["modules.json"] =
      R"([{"idx": 0, "path": "0_RoBERTa", "type": "sentence_transformers.models.Transformer"},
                              {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])";
  files["1_Pooling/config.json"] = R"({"word_embedding_dimension": 8, "pooling_mode_max_tokens": true})";
  put(scratch, files);
  const SentenceFolder read = read_sentence_folder(scratch.path());
  EXPECT_EQ(read.encoder, "0_RoBERTa");
  EXPECT_EQ(read.max_length, 75);
  EXPECT_EQ(read.poolings, std::vector{Pooling::max});
  EXPECT_TRUE(read.include_prompt && read.steps.empty());
  EXPECT_TRUE(read.steps.empty() || read.steps.back().kind != SentenceStep::Kind::normalise);
}

TEST(SentenceFolder, StaticEmbeddingsNeedNoPooling) {
  const Scratch scratch;
  scratch.put("modules.json",
              R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.StaticEmbedding"},
                  {"idx": 1, "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"}])");
  const SentenceFolder read = read_sentence_folder(scratch.path());
  EXPECT_TRUE(read.is_static && read.poolings.empty());
  EXPECT_EQ(read.steps.back().kind, SentenceStep::Kind::normalise);
  EXPECT_EQ(read.vector_width(7), 7);
}

TEST(SentenceFolder, AWrittenTableLiesInAFolderOfItsOwn) {
  const Scratch scratch;
  SentenceFolder modules;
  modules.is_static = true;
  modules.poolings.clear();
  modules.steps = {SentenceStep::normalisation()};
  write_sentence_folder(modules, scratch.path());
  EXPECT_EQ(modules.encoder, "0_StaticEmbedding");
  EXPECT_TRUE(fs::is_directory(scratch / "0_StaticEmbedding"));
  const SentenceFolder read = read_sentence_folder(scratch.path());
  EXPECT_TRUE(read.is_static);
  EXPECT_EQ(read.encoder, modules.encoder);
}

TEST(SentenceFolder, WhatCannotBeReadIsRefusedByName) {
  const std::vector<std::tuple<const char*, const char*, const char*, const char*>> cases = {
      {"modules.json", "models.Dense", "models.CNN",
       "cannot read modules of type CNN; expected Transformer, Pooling"},
      {"modules.json", "models.Dense", "models.Pooling",
       "expected one Pooling, directly behind the Transformer"},
      {"modules.json", "models.Pooling", "models.Normalize", "module 1 is Normalize; expected one Pooling"},
      {"modules.json", "models.Transformer", "models.Pooling", "module 0 is Pooling; expected Transformer"},
      {"modules.json", "2_Dense", "../2_Dense", "leaves the folder"},
      {"modules.json", "2_Dense", "/2_Dense", "leaves the folder"},
      {"1_Pooling/config.json", "\"pooling_mode_cls_token\": true", "\"pooling_mode\": \"median\"",
       "expected a pooling (cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken), found "
       "\"median\""},
      {"1_Pooling/config.json", "\"pooling_mode_cls_token\": true", "\"pooling_mode\": []",
       "at least one pooling"},
      {"1_Pooling/config.json", "\"pooling_mode_cls_token\": true", "\"pooling_mode_cls_token\": 1",
       "true or false"},
      {"1_Pooling/config.json", "8", "-8", "expected hidden states of 1 to"},
      {"1_Pooling/config.json", "8", "9", "reads vectors of 16 numbers, and the module before it gives 18"},
      {"2_Dense/config.json", "linear.Identity", "activation.Hardtanh",
       "activation_function\" is torch.nn.modules"},
      {"2_Dense/config.json", "torch.nn", "my.nn", "activation_function\" is my.nn"},
      {"2_Dense/config.json", "16", "0", "in_features and out_features from 1 to"},
      {"2_Dense/config.json", "\"bias\"", "\"use_residual\": true, \"bias\"", "use_residual"},
      {"2_Dense/config.json", "\"bias\"", "\"module_input_name\": \"token_embeddings\", \"bias\"",
       "token_embeddings"},
      {"sentence_bert_config.json", "256", "0", "max_seq_length"},
      {"sentence_bert_config.json", "256", "\"a\"", "max_seq_length"},
      {"sentence_bert_config.json", "\"max_seq_length\"",
       "\"transformer_task\": \"fill-mask\", \"max_seq_length\"", "transformer_task"},
      {"config_sentence_transformers.json", "dot", "maxsim", "cosine, dot, euclidean or manhattan"},
      {"config_sentence_transformers.json", "\"q: \"", "5", "an object of texts"},
      {"config_sentence_transformers.json", "\"default_prompt_name\": \"query\"",
       "\"default_prompt_name\": \"none\"", "none of the prompts"},
      {"config_sentence_transformers.json", "3}", "0}", "truncate_dim"},
  };
  for (const auto& [file, from, to, expected] : cases) {
    const Scratch scratch;
    Files files = old_form();
    std::string& text = files.at(file);
    text.replace(text.find(from), std::string(from).size(), to);
    put(scratch, files);
    const std::string error = error_of([&] { read_sentence_folder(scratch.path()); });
    EXPECT_NE(error.find(expected), std::string::npos) << file << ": " << to << "\n" << error;
  }
}

TEST(SentenceFolder, AnyBytesAreReadOrRefused) {
  std::mt19937_64 random(17);
  const Scratch scratch;
  int taken = 0;
  const int rounds = fuzz_rounds(300);
  for (int round = 0; round < rounds; ++round) {
    Files files = round % 2 ? old_form() : new_form();
    auto victim = files.begin();
    std::advance(victim, random() % files.size());
    if (random() % 2) {
      victim->second = mutate(victim->second, random);
    } else {
      Json json = parse_json(victim->second, "fuzz");
      Json& object = json.is_array() ? json[random() % json.size()] : json;
      auto key = object.begin();
      std::advance(key, random() % object.size());
      *key = strange_value(random);
      victim->second = json.dump();
    }
    put(scratch, files);
    SentenceFolder read;
    if (!error_of([&] { read = read_sentence_folder(scratch.path()); }).empty()) continue;
    ++taken;
    EXPECT_GE(read.max_length, 0);
    EXPECT_GE(read.vector_width(8), 1);
    EXPECT_LE(read.vector_width(8), 1 << 23);
    EXPECT_FALSE(read.encoder.is_absolute());
  }
  EXPECT_GT(taken, rounds / 20);
  EXPECT_LT(taken, rounds);
}

}  // namespace
}  // namespace funicular::format
