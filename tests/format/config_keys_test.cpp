// Unknown keys of config.json: the one that was meant is named, and nothing is said of harmless ones.

#include "funicular/format/config_keys.h"

#include "scratch.h"

namespace funicular::format {
namespace {

Json whole() {
  return parse_json(R"({"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                        "intermediate_size": 16, "max_position_embeddings": 32})",
                    "test");
}

/// Of a configuration that gives `key` in place of `meant`.
std::vector<std::string> doubts_of(const std::string& key, const std::string& meant) {
  Json config = whole();
  config.erase(meant);
  config[key] = 1;
  return doubtful_keys(config);
}

TEST(ConfigKeys, TheKeyThatWasMeantIsNamed) {
  const std::pair<const char*, const char*> cases[] = {{"hiden_size", "hidden_size"},
                                                       {"num_layers", "num_hidden_layers"},
                                                       {"n_layer", "num_hidden_layers"},
                                                       {"n_embd", "hidden_size"},
                                                       {"dim", "hidden_size"},
                                                       {"num_heads", "num_attention_heads"},
                                                       {"intermediate", "intermediate_size"},
                                                       {"d_ff", "intermediate_size"},
                                                       {"n_positions", "max_position_embeddings"},
                                                       {"hidden_dropout", "hidden_dropout_prob"},
                                                       {"attention_dropout", "attention_probs_dropout_prob"},
                                                       {"layer_norm_epsilon", "layer_norm_eps"}};
  for (const auto& [key, meant] : cases) {
    const std::vector<std::string> doubts = doubts_of(key, meant);
    ASSERT_EQ(doubts.size(), 1u) << key;
    EXPECT_NE(doubts[0].find(std::string("\"") + key + "\" is not known"), std::string::npos) << doubts[0];
    EXPECT_NE(doubts[0].find(std::string("mean \"") + meant + "\"?"), std::string::npos) << doubts[0];
  }
}

TEST(ConfigKeys, OfAFamilyAreKnownInItsOwnFilesAndNamedInOthers) {
  Json config =
      parse_json(R"({"model_type": "distilbert", "vocab_size": 9, "dim": 8, "n_layers": 2, "n_heads": 2,
      "hidden_dim": 16, "max_position_embeddings": 32, "dropout": 0.1, "attention_dropout": 0.1, "activation": "gelu",
      "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": false, "tie_weights_": true})",
                 "test");
  EXPECT_EQ(doubtful_keys(config), std::vector<std::string>{});
  config.erase("dim");
  config["hidden_size"] = 8;
  const std::vector<std::string> doubts = doubtful_keys(config);
  ASSERT_EQ(doubts.size(), 1u);
  EXPECT_NE(doubts[0].find("\"hidden_size\" is not known"), std::string::npos) << doubts[0];
  EXPECT_NE(doubts[0].find("mean \"dim\"?"), std::string::npos) << doubts[0];
}

TEST(ConfigKeys, NothingIsSaidOfAKeyWhoseMeaningTheFileGivesElsewhere) {
  Json config = whole();
  config["num_layers"] = config["n_embd"] = config["hiden_size"] = config["our_own_key"] = 1;
  EXPECT_EQ(doubtful_keys(config), std::vector<std::string>{});
}

TEST(ConfigKeys, KeysThatPublishedModelsCarryAreNoMisspeltOnes) {
  // Of google-bert/bert-base-chinese, hfl/chinese-*, google/electra-*, FacebookAI/roberta-*, and what transformers 2 to 5
  // write for every model.
  for (const char* const key : {"pooler_type",
                                "pooler_fc_size",
                                "pooler_num_attention_heads",
                                "pooler_num_fc_layers",
                                "pooler_size_per_head",
                                "directionality",
                                "output_past",
                                "summary_type",
                                "summary_activation",
                                "summary_last_dropout",
                                "summary_use_proj",
                                "finetuning_task",
                                "language",
                                "name",
                                "adapters",
                                "gradient_checkpointing",
                                "_num_labels",
                                "num_beams",
                                "do_sample",
                                "max_length",
                                "min_length",
                                "length_penalty",
                                "torchscript",
                                "use_bfloat16",
                                "xla_device",
                                "task_specific_params",
                                "top_k",
                                "num_hidden_groups",
                                "net_structure_type",
                                "vocab_size_or_config_json_file",
                                "_attn_implementation"}) {
    Json config = whole();
    config[key] = 1;
    EXPECT_EQ(doubtful_keys(config), std::vector<std::string>{}) << key;
    config.erase("hidden_size");
    EXPECT_EQ(doubtful_keys(config), std::vector<std::string>{}) << key;
  }
}

TEST(ConfigKeys, ClassesOfWhichTheKeysDisagreeAreTold) {
  Json config = whole();
  const auto told = [&](const char* phrase) {
    const std::vector<std::string> doubts = doubtful_keys(config);
    return doubts.size() == 1 && doubts[0].find(phrase) != std::string::npos;
  };
  config["label2id"] = {{"b", 1}};
  EXPECT_TRUE(told("no \"id2label\""));
  config["id2label"] = {{"1", "b"}, {"0", "a"}, {"2", "b"}};
  EXPECT_TRUE(told("classes 1 and 2 one name, \"b\""));
  config["id2label"]["2"] = "c";
  config["label2id"] = {{"c", "2"}, {"a", 0}};
  EXPECT_EQ(doubtful_keys(config), std::vector<std::string>{});
  config["label2id"]["LABEL_1"] = 1;
  EXPECT_TRUE(told("\"label2id\" says 1 for \"LABEL_1\""));
  config["num_labels"] = 2;
  EXPECT_TRUE(told("\"num_labels\" is 2, and \"id2label\" names 3"));
}

TEST(ConfigKeys, OtherUnknownKeysAreNamedWhereASizeIsLeftOut) {
  Json config = whole();
  config.erase("num_hidden_layers");
  EXPECT_EQ(doubtful_keys(config), std::vector<std::string>{}) << "a default without a doubt";
  config["our_own_key"] = 1;
  const std::vector<std::string> doubts = doubtful_keys(config);
  ASSERT_EQ(doubts.size(), 1u);
  EXPECT_NE(doubts[0].find("no \"num_hidden_layers\", so the default is taken"), std::string::npos)
      << doubts[0];
  EXPECT_NE(doubts[0].find("our_own_key"), std::string::npos) << doubts[0];
}

}  // namespace
}  // namespace funicular::format
