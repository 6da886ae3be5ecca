#include "funicular/format/tokenizer_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/text/word_piece.h"
#include "scratch.h"

namespace funicular::format {
namespace {

using Ids = std::vector<int32_t>;

class TokenizerFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("funicular_" + std::to_string(getpid()) + "_" + test->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, std::string_view contents) const {
    std::ofstream(folder_ / name, std::ios::binary) << contents;
    return folder_ / name;
  }

  // The message of the InputError that loading throws, or "".
  static std::string error_of(const fs::path& path) {
    try {
      load_tokenizer(path);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

const std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwant\n##want\nun\n,\nUn\n";

Json good_json() {
  return Json::parse(
      R"({"version": "1.0", "truncation": {"max_length": 4}, "padding": {"strategy": {"Fixed": 4}},
    "added_tokens": [{"id": 1, "content": "[M]", "special": true}],
    "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": null},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "</s>", "type_id": 0}}],
      "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
               {"SpecialToken": {"id": "</s>", "type_id": 1}}]},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100,
              "vocab": {"[UNK]": 0, "[M]": 1, "<s>": 2, "</s>": 3, "a": 4, "##b": 5}}})");
}

TEST_F(TokenizerFiles, AVocabularyAloneIsAnUncasedTokenizer) {
  const auto tokenizer = load_tokenizer(write("vocab.txt", vocabulary));
  EXPECT_EQ(tokenizer->tokenize("Unwant, [MASK]").ids, (Ids{7, 6, 8, 4}));
  EXPECT_EQ(tokenizer->special().pad, 0);
  EXPECT_EQ(tokenizer->special().sep, 3);
  EXPECT_EQ(load_tokenizer(folder_)->fingerprint(), tokenizer->fingerprint());
}

TEST_F(TokenizerFiles, TheConfigBesideAVocabularyHolds) {
  write("vocab.txt", vocabulary);
  write(
      "tokenizer_config.json",
      R"({"do_lower_case": false, "mask_token": {"content": "want"}, "pad_token": "un", "strip_accents": null})");
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->tokenize("Unwant").ids, (Ids{9, 5})) << "the mask token is matched first";
  EXPECT_EQ(tokenizer->special().mask, 5);
  EXPECT_EQ(tokenizer->special().pad, 7);
}

TEST_F(TokenizerFiles, LineEndsOfWindowsAByteOrderMarkAndBlankLastLinesAreNoTokens) {
  std::string windows = "\xEF\xBB\xBF";
  for (const char c : vocabulary) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const auto plain = load_tokenizer(write("vocab.txt", vocabulary))->fingerprint();
  EXPECT_EQ(load_tokenizer(write("vocab.txt", windows + "\r\n\r\n"))->fingerprint(), plain);
}

TEST_F(TokenizerFiles, WrongVocabulariesAreRefusedWithTheLine) {
  EXPECT_NE(error_of(write("vocab.txt", "[UNK]\na\nb\na\n")).find("vocab.txt:4"), std::string::npos);
  EXPECT_NE(error_of(write("vocab.txt", "a\nb\n")).find("\"[UNK]\" is on none of the 2 lines"),
            std::string::npos);
  EXPECT_NE(error_of(folder_ / "missing").find("no such file"), std::string::npos);
  fs::remove(folder_ / "vocab.txt");
  EXPECT_NE(error_of(folder_).find("expected tokenizer.json or vocab.txt"), std::string::npos);
}

TEST_F(TokenizerFiles, TokenizerJsonIsPreferredAndItsPaddingIgnored) {
  write("vocab.txt", vocabulary);
  write("tokenizer.json", good_json().dump());
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->tokenize("AB ab ab ab ab [M]").ids, (Ids{4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 1}));
  EXPECT_EQ(tokenizer->special().cls, 2) << "named by the post-processor";
  EXPECT_EQ(tokenizer->special().sep, 3);
}

TEST_F(TokenizerFiles, OtherKindsAreRefusedByName) {
  const auto error_with = [&](const char* pointer, const Json& value) {
    Json changed = good_json();
    changed[Json::json_pointer(pointer)] = value;
    return error_of(write("tokenizer.json", changed.dump()));
  };
  const auto names = [](const std::string& message, const char* words) {
    return message.find(words) != std::string::npos;
  };
  EXPECT_TRUE(names(error_with("/model/type", "BPE"), "the model is BPE; supported: WordPiece"));
  EXPECT_TRUE(names(error_with("/normalizer/type", "NFC"), "NFC"));
  EXPECT_TRUE(names(error_with("/normalizer", nullptr), "the normalizer is none"));
  EXPECT_TRUE(names(error_with("/pre_tokenizer/type", "ByteLevel"), "ByteLevel"));
  EXPECT_TRUE(names(error_with("/post_processor/type", "RobertaProcessing"), "RobertaProcessing"));
  EXPECT_TRUE(names(error_with("/post_processor/pair/3/Sequence/type_id", 0), "\"pair\""));
  EXPECT_TRUE(names(error_with("/model/vocab/a", 17), "id 17"));
  EXPECT_TRUE(names(error_with("/model/vocab/a", 5), "share the id 5"));
  EXPECT_TRUE(names(error_with("/added_tokens/0/id", 4), "\"[M]\" has the id 4"));
  EXPECT_TRUE(names(error_with("/model/unk_token", "<unk>"), "\"<unk>\" is missing"));
}

TEST_F(TokenizerFiles, IdsAreTakenAsTheyStandAndNeverCut) {
  const auto error_with = [&](const char* pointer, const Json& value) {
    Json changed = good_json();
    changed[Json::json_pointer(pointer)] = value;
    return error_of(write("tokenizer.json", changed.dump()));
  };
  const auto expect = [](const std::string& message, const char* words) {
    EXPECT_NE(message.find(words), message.npos) << message;
    EXPECT_NE(message.find("tokenizer.json"), message.npos) << message;
  };
  EXPECT_EQ(error_with("/added_tokens/0/id", 1), "");
  const int64_t beyond = int64_t{1} << 32;
  expect(error_with("/added_tokens/0/id", beyond + 1), "\"id\": expected an integer from");
  expect(error_with("/added_tokens/0/id", 1.0), "\"id\": expected an integer from");
  expect(error_with("/model/vocab/a", beyond + 4), "id 4294967300; expected an integer from 0 to 5");
  expect(error_with("/model/vocab/a", UINT64_MAX), "expected an integer from 0 to 5");
  expect(error_with("/model/vocab/a", 4.0), "expected an integer from 0 to 5");
  expect(error_with("/model/max_input_chars_per_word", beyond + 100), "\"max_input_chars_per_word\"");
  expect(error_with("/post_processor/single/0/SpecialToken/type_id", beyond), "\"type_id\"");
}

TEST_F(TokenizerFiles, TheIdsOfThePostProcessorAreThoseOfTheVocabulary) {
  const auto error_with = [&](const Json& part) {
    Json changed = good_json();
    changed["post_processor"] = part;
    return error_of(write("tokenizer.json", changed.dump()));
  };
  const auto bert = [](const Json& cls, const Json& sep) {
    return Json{{"type", "BertProcessing"}, {"cls", {"<s>", cls}}, {"sep", {"</s>", sep}}};
  };
  EXPECT_EQ(error_with(bert(2, 3)), "");
  for (const auto& [part, words] : std::vector<std::pair<Json, const char*>>{
           {bert(2, 2), "gives \"</s>\" the id 2, the vocabulary 3"},
           {bert((int64_t{1} << 32) + 2, 3), "gives \"<s>\" the id 4294967298, the vocabulary 2"},
           {bert("2", 3), "gives \"<s>\" the id \"2\""},
           {Json{{"type", "BertProcessing"}, {"cls", {"none", 2}}, {"sep", {"</s>", 3}}},
            "the vocabulary none"},
           {Json{{"type", "BertProcessing"}, {"cls", {"<s>"}}, {"sep", {"</s>", 3}}}, "\"cls\""}}) {
    const std::string message = error_with(part);
    EXPECT_NE(message.find(words), message.npos) << message;
  }
  const auto with_ids = [&](const Json& ids) {
    Json part = good_json()["post_processor"];
    part["special_tokens"] = {{"<s>", {{"id", "<s>"}, {"ids", ids}, {"tokens", {"<s>"}}}},
                              {"</s>", {{"id", "</s>"}, {"ids", {3}}, {"tokens", {"</s>"}}}}};
    return error_with(part);
  };
  EXPECT_EQ(with_ids(Json::array({2})), "");
  for (const Json& ids : {Json::array({4}), Json::array({2, 2}), Json::array(), Json(2.5)})
    EXPECT_NE(with_ids(ids).find("gives \"<s>\" the id"), std::string::npos) << with_ids(ids);
}

TEST_F(TokenizerFiles, WhatIsWrittenReadsTheSame) {
  std::vector<text::AddedToken> added = {
      {.id = 0, .content = "[UNK]"},
      {.id = 4, .content = "New", .special = false, .normalized = true, .lstrip = true, .single_word = true}};
  text::WordPieceOptions options{.lowercase = false,
                                 .clean_text = false,
                                 .strip_accents = text::WordPieceOptions::StripAccents::yes,
                                 .max_characters_per_word = 7,
                                 .cls_token = "<s>",
                                 .sep_token = "</s>"};
  const text::WordPiece tokenizer({"[UNK]", "<s>", "</s>", "\u00E9\"\\"}, options, added);
  save_tokenizer(folder_ / "deep" / "folder", tokenizer);
  const auto copy = load_tokenizer(folder_ / "deep" / "folder");
  EXPECT_EQ(copy->fingerprint(), tokenizer.fingerprint());
  EXPECT_EQ(copy->vocabulary(), tokenizer.vocabulary());
  EXPECT_EQ(copy->model_size(), 4);
}

TEST_F(TokenizerFiles, DamagedFilesAreRefusedOrReadNeverACrash) {
  const std::string json = good_json().dump();
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    const bool is_json = i % 4 != 0;
    std::string damaged = is_json ? json : vocabulary;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % damaged.size();
      if (random() % 2)
        damaged[at] = static_cast<char>(random());
      else
        damaged.erase(at, 1 + random() % 20);
    }
    refused += !error_of(write(is_json ? "tokenizer.json" : "vocab.txt", damaged)).empty();
  }
  EXPECT_GT(refused, 200);
}

TEST_F(TokenizerFiles, ValuesOfAnyKindAreReadWithinTheVocabularyOrRefused) {
  std::mt19937_64 random(5);
  const Json whole = good_json().flatten();
  std::vector<std::string> places;
  for (const auto& [place, value] : whole.items()) places.push_back(place);
  int taken = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    Json json = good_json();
    json[Json::json_pointer(places[random() % places.size()])] = strange_value(random);
    try {
      const auto tokenizer = load_tokenizer(write("tokenizer.json", json.dump()));
      ++taken;
      for (const int32_t id : tokenizer->tokenize("a ab [M] [UNK] zz").ids)
        EXPECT_TRUE(id >= 0 && id < tokenizer->size()) << json;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(taken, 30);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace funicular::format
