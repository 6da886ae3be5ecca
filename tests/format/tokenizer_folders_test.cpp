// Which files of a tokenizer's folder hold. The values are those of AutoTokenizer of transformers 5.23; the golden test
// tokenizer_layouts compares with it on many more.

#include <gtest/gtest.h>

#include "funicular/format/tokenizer_files.h"
#include "funicular/text/word_piece.h"
#include "scratch.h"

namespace funicular::format {
namespace {

using Ids = std::vector<int32_t>;

const char* const kFolderVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nfilm\ngood\nGood\n##s\n";

class TokenizerFolders : public testing::Test {
 protected:
  void SetUp() override {
    scratch_.put("config.json", R"({"model_type": "bert"})");
    scratch_.put("vocab.txt", kFolderVocabulary);
  }

  Ids ids(std::string_view text) const { return load_tokenizer(scratch_.path())->tokenize(text).ids; }
  std::string warnings() const {
    testing::internal::CaptureStderr();
    load_tokenizer(scratch_.path());
    return testing::internal::GetCapturedStderr();
  }
  std::string error() const {
    return error_of([&] { load_tokenizer(scratch_.path()); });
  }
  void settings(const char* json) const { scratch_.put("tokenizer_config.json", json); }

  Scratch scratch_;
};

TEST_F(TokenizerFolders, AddedTokensFollowTheVocabularyInTheOrderOfTheirIds) {
  scratch_.put("added_tokens.json", R"({"[/E1]": 11, "[E1]": 10})");
  EXPECT_EQ(ids("a [E1] Good [/e1]"), (Ids{5, 10, 7, 11})) << "they are normalised as the text is";
  EXPECT_EQ(warnings(), "");
  scratch_.put("added_tokens.json", R"({"[E1]": 15})");
  EXPECT_EQ(ids("[E1]"), (Ids{10}));
  EXPECT_NE(warnings().find("\"[E1]\" is 10 and not 15"), std::string::npos);
}

TEST_F(TokenizerFolders, TokensOfTheClassThatTheVocabularyLacksFollowItAndAreTold) {
  scratch_.put("vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
  EXPECT_EQ(ids("a [MASK]"), (Ids{3, 5}));
  EXPECT_NE(warnings().find("the vocabulary lacks [PAD], [MASK]"), std::string::npos);
}

TEST_F(TokenizerFolders, SpecialTokensComeOfEitherFileAndTheMapHolds) {
  settings(R"({"additional_special_tokens": ["<x>"], "mask_token": "[M]"})");
  EXPECT_EQ(ids("a <x> <X>"), (Ids{5, 11, 1, 1, 1})) << "special ones are sought in the text as it stands";
  scratch_.put("special_tokens_map.json", R"({"mask_token": {"content": "[MASK]", "lstrip": true}})");
  EXPECT_EQ(ids("a [MASK]<x>"), (Ids{5, 4, 10}));
  EXPECT_EQ(load_tokenizer(scratch_.path())->special().mask, 4);
  settings("{}");
  scratch_.put("special_tokens_map.json",
               R"({"additional_special_tokens": [{"content": "<X>", "special": false}]})");
  EXPECT_EQ(ids("<X> <x>"), (Ids{10, 1, 1, 1})) << "tokens of the map are special, whatever they say";
}

TEST_F(TokenizerFolders, ATokenThatSaysNothingOfNormalisationFollowsItsRole) {
  const auto token = [](const char* name, const char* more = "") {
    return std::string(R"({"__type": "AddedToken", "content": ")") + name + '"' + more + "}";
  };
  const auto found = [&](const std::string& config) {
    settings(("{" + config + "}").c_str());
    return ids("a <M> <m> <X> <x>");
  };
  const Ids as_it_stands{5, 1, 1, 1, 1, 1, 1, 10, 1, 1, 1};
  EXPECT_EQ(found("\"mask_token\": " + token("<M>")), (Ids{5, 10, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(found("\"mask_token\": " + token("<M>", ", \"normalized\": true")),
            (Ids{5, 10, 10, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(found("\"eos_token\": " + token("<X>")), as_it_stands);
  EXPECT_EQ(found("\"additional_special_tokens\": [" + token("<X>", ", \"special\": true") + "]"),
            as_it_stands);
  EXPECT_EQ(found("\"additional_special_tokens\": [" + token("<X>") + "]"),
            (Ids{5, 1, 1, 1, 1, 1, 1, 10, 10}))
      << "it has no role";
  EXPECT_EQ(
      found(
          R"("added_tokens_decoder": {"10": {"content": "<X>"}, "11": {"content": "<M>"}}, "mask_token": "<M>")"),
      (Ids{5, 11, 1, 1, 1, 10, 10}));
}

TEST_F(TokenizerFolders, WhereTheConfigurationListsAddedTokensItAloneHolds) {
  settings(R"({"added_tokens_decoder": {"10": {"content": "<y>", "special": true}}})");
  scratch_.put("added_tokens.json", R"({"<x>": 10})");
  EXPECT_EQ(ids("<y><x>"), (Ids{10, 1, 1, 1}));
}

TEST_F(TokenizerFolders, TheClassesSettingsHoldOverTokenizerJson) {
  save_tokenizer(scratch_.path(), *load_tokenizer(scratch_.path()));
  settings(R"({"tokenizer_class": "BertTokenizer", "do_lower_case": false})");
  EXPECT_EQ(ids("Good good"), (Ids{8, 7}));
  EXPECT_NE(warnings().find("do_lower_case is false, and lowercase there is true"), std::string::npos);
  settings(R"({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": false})");
  EXPECT_EQ(ids("Good good"), (Ids{7, 7})) << "tokenizer.json as it stands";
  EXPECT_NE(warnings().find("tokenizer.json holds"), std::string::npos);
  settings(R"({"tokenizer_class": "BertTokenizer"})");
  scratch_.put("vocab.txt", std::string(kFolderVocabulary).replace(38, 4, "fine"));
  EXPECT_NE(warnings().find("line 8 is \"fine\", and in tokenizer.json that token is \"good\""),
            std::string::npos);
}

TEST_F(TokenizerFolders, MpnetsTokensStandAroundTextsAsRobertasDo) {
  using Step = text::SequenceTemplate::Step;
  scratch_.put("config.json", R"({"model_type": "mpnet"})");
  scratch_.put("vocab.txt", "<s>\n<pad>\n</s>\n[UNK]\n<mask>\na\ngood\n");
  for (const char* const config :
       {"{}", R"({"tokenizer_class": "MPNetTokenizer", "mask_token": "<mask>"})"}) {
    settings(config);
    const auto tokenizer = load_tokenizer(scratch_.path());
    EXPECT_EQ(tokenizer->special().pad, 1);
    EXPECT_EQ(tokenizer->special().mask, 4);
    const auto pair = tokenizer->sequence().steps(2);
    EXPECT_EQ(std::vector<Step>(pair.begin(), pair.end()),
              (std::vector<Step>{Step::special(0, 0), Step::text(0, 0), Step::special(2, 0),
                                 Step::special(2, 0), Step::text(1, 0), Step::special(2, 0)}));
    text::TokenizedText tokens;
    std::vector<text::CharacterRange> offsets;
    tokenizer->tokenize("good <mask> a", tokens, offsets);
    EXPECT_EQ(tokens.ids, (Ids{6, 4, 5}));
    EXPECT_EQ(offsets.at(1), (text::CharacterRange{5, 11})) << "the blank that the mask takes is trimmed";
    save_tokenizer(scratch_.path() / "copy", *tokenizer);
    EXPECT_EQ(load_tokenizer(scratch_.path() / "copy")->fingerprint(), tokenizer->fingerprint());
    EXPECT_EQ(read_json(scratch_ / "copy" / "tokenizer_config.json")["tokenizer_class"], "MPNetTokenizer");
  }
  scratch_.put("vocab.txt", "<s>\n<pad>\n[UNK]\n<mask>\na\n");
  settings(R"({"sep_token": null, "eos_token": null})");
  EXPECT_NE(error().find("the vocabulary lacks the token \"</s>\", which stands around every text"),
            std::string::npos)
      << error();
}

TEST_F(TokenizerFolders, ClassesWithRulesOfTheirOwnAreRefusedByName) {
  settings(R"({"tokenizer_class": "BertJapaneseTokenizer"})");
  EXPECT_NE(error().find("\"tokenizer_class\" is BertJapaneseTokenizer, which is not implemented"),
            std::string::npos);
  settings(R"({"word_tokenizer_type": "mecab"})");
  EXPECT_NE(error().find("\"word_tokenizer_type\" is \"mecab\""), std::string::npos);
  settings(R"({"tokenizer_class": "OwnTokenizer"})");
  EXPECT_NE(error().find("is OwnTokenizer, which transformers does not know"), std::string::npos);
  settings(R"({"tokenizer_class": "RobertaTokenizer"})");
  EXPECT_NE(error().find("which reads vocab.json and merges.txt"), std::string::npos);
  settings(R"({"split_special_tokens": true})");
  EXPECT_NE(error().find("\"split_special_tokens\" is true"), std::string::npos);
  settings("{}");
  scratch_.put("config.json", R"({"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"})");
  EXPECT_NE(error().find("config.json: \"tokenizer_class\" is BertJapaneseTokenizer"), std::string::npos);
  scratch_.put("config.json", R"({"model_type": "bert"})");
  for (const char* const name : {"BertTokenizerFast", "DistilBertTokenizer", "ElectraTokenizer"}) {
    settings((std::string(R"({"tokenizer_class": ")") + name + "\"}").c_str());
    EXPECT_EQ(error(), "") << name;
  }
}

TEST_F(TokenizerFolders, TwoAddedTokensWithOneIdAreTold) {
  scratch_.put("added_tokens.json", R"({"<x>": 10, "<y>": 10})");
  EXPECT_EQ(ids("<x><y>"), (Ids{1, 1, 1, 10}));
  EXPECT_NE(warnings().find("the added tokens \"<x>\" and \"<y>\" share the id 10, and \"<y>\" gets it"),
            std::string::npos);
}

TEST_F(TokenizerFolders, TheLargestIdLeavesNoneForATokenThatFollows) {
  save_tokenizer(scratch_.path(), *load_tokenizer(scratch_.path()));
  settings(R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"})");
  Json json = read_json(scratch_ / "tokenizer.json");
  json["added_tokens"].push_back({{"id", 2147483646}, {"content", "<x>"}});
  scratch_.put("tokenizer.json", json.dump());
  EXPECT_NE(error().find("tokenizer.json: the added token \"<x>\" has the id 2147483646"), std::string::npos)
      << error();
  json["added_tokens"].back()["id"] = 2147483647;
  scratch_.put("tokenizer.json", json.dump());
  EXPECT_NE(
      error().find(
          "tokenizer.json: no id is left for the token \"<s>\", since an added token has the id 2147483647"),
      std::string::npos)
      << error();
}

TEST_F(TokenizerFolders, ATokenOnTwoLinesHasTheIdOfTheLast) {
  scratch_.put("vocab.txt", std::string(kFolderVocabulary) + "film\nlast\n");
  EXPECT_EQ(ids("film last"), (Ids{10, 11}));
  EXPECT_NE(warnings().find("1 tokens stand on a second line"), std::string::npos);
  EXPECT_NE(warnings().find("\"film\" is on the lines 7 and 11"), std::string::npos);
  save_tokenizer(scratch_.path() / "copy", *load_tokenizer(scratch_.path()));
  EXPECT_EQ(load_tokenizer(scratch_.path() / "copy")->tokenize("film last").ids, (Ids{10, 11}));
  scratch_.put("added_tokens.json", R"({"<x>": 12})");
  EXPECT_NE(error().find("1 tokens stand twice"), std::string::npos);
}

TEST_F(TokenizerFolders, WhatIsSavedKeepsAddedTokensInEveryFile) {
  settings(R"({"do_lower_case": false, "additional_special_tokens": ["<x>"]})");
  scratch_.put("added_tokens.json", R"({"<x>": 10, "New": 11})");
  const auto tokenizer = load_tokenizer(scratch_.path());
  const fs::path copy = scratch_.path() / "copy";
  save_tokenizer(copy, *tokenizer);
  EXPECT_EQ(load_tokenizer(copy)->fingerprint(), tokenizer->fingerprint());
  const Json config = read_json(copy / "tokenizer_config.json");
  EXPECT_EQ(config["additional_special_tokens"], Json({"<x>"}));
  fs::remove(copy / "tokenizer.json");
  EXPECT_EQ(load_tokenizer(copy)->fingerprint(), tokenizer->fingerprint());
}

}  // namespace
}  // namespace funicular::format
