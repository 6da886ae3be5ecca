#include "funicular/format/tokenizer_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/text/byte_bpe.h"
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

TEST_F(TokenizerFiles, SpecialTokensAreSoughtInTheTextAsItStandsUnlessTheySayOtherwise) {
  Json json = good_json();
  EXPECT_EQ(load_tokenizer(write("tokenizer.json", json.dump()))->tokenize("[M][m]").ids, (Ids{1, 0, 0, 0}))
      << "in lower case it is three unknown words";
  json["added_tokens"][0]["normalized"] = true;
  EXPECT_EQ(load_tokenizer(write("tokenizer.json", json.dump()))->tokenize("[M][m]").ids, (Ids{1, 1}));
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
  const std::string word_level = error_with("/model/type", "WordLevel");
  EXPECT_TRUE(names(word_level, "the model is WordLevel; supported: WordPiece or BPE or Unigram"));
  EXPECT_TRUE(names(word_level, "take a model whose tokeniser docs/reference/tokenizers.md lists"));
  EXPECT_TRUE(names(error_with("/model/type", "BPE"), "\"continuing_subword_prefix\" is \"##\""));
  EXPECT_TRUE(names(error_with("/normalizer/type", "NFC"), "NFC"));
  EXPECT_TRUE(names(error_with("/normalizer", nullptr), "the normalizer is none"));
  EXPECT_TRUE(names(error_with("/pre_tokenizer/type", "ByteLevel"), "ByteLevel"));
  EXPECT_TRUE(names(error_with("/post_processor/type", "ByteLevel"), "ByteLevel"));
  EXPECT_TRUE(names(error_with("/post_processor/pair/3/Sequence/type_id", 0), "\"pair\""));
  EXPECT_TRUE(
      names(error_with("/model/vocab/a", 17), "id 17; expected an integer from 0 to 5; copy the file again"));
  EXPECT_TRUE(names(error_with("/model/vocab/a", 5), "share the id 5; copy the file again"));
  const std::string remedy = "; copy the file again, or save the tokeniser with transformers";
  const std::string cut = good_json().dump();
  for (const std::string& text : {std::string(), cut.substr(0, cut.size() / 2)})
    EXPECT_TRUE(error_of(write("tokenizer.json", text)).ends_with(remedy)) << text;
  EXPECT_TRUE(
      names(error_with("/added_tokens/0/id", 4), "\"[M]\" has the id 4, and in the vocabulary it is 1"));
  EXPECT_TRUE(
      names(error_with("/added_tokens/0/id", 6), "\"[M]\" has the id 6, and in the vocabulary it is 1"));
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

// ---- byte-level BPE

Json bpe_json() {
  return Json::parse(
      R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 0, "content": "<s>", "special": true}, {"id": 9, "content": "<x>", "lstrip": true}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true},
    "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0], "trim_offsets": true,
                       "add_prefix_space": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
              "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"<s>": 0, "</s>": 1, "<mask>": 2, "a": 3, "b": 4, "ab": 5, "Ġ": 6, "Ġab": 7, "<pad>": 8},
              "merges": ["a b", ["Ġ", "ab"]]}})");
}

const char* const bpe_vocabulary =
    R"({"<s>": 0, "</s>": 1, "<mask>": 2, "a": 3, "b": 4, "ab": 5, "Ġ": 6, "Ġab": 7, "<pad>": 8})";

std::vector<int32_t> ids_around(const text::Tokenizer& tokenizer, int columns) {
  std::vector<int32_t> ids;
  for (const auto& step : tokenizer.sequence().steps(columns))
    ids.push_back(step.column < 0 ? step.token : -1);
  return ids;
}

TEST_F(TokenizerFiles, ByteLevelBpeIsReadWithMergesInBothForms) {
  const auto tokenizer = load_tokenizer(write("tokenizer.json", bpe_json().dump()));
  EXPECT_EQ(tokenizer->type(), "BPE");
  EXPECT_EQ(tokenizer->tokenize("ab ab").ids, (Ids{7, 7}));
  EXPECT_EQ(tokenizer->tokenize("ab  <x>").ids, (Ids{7, 9}));
  EXPECT_EQ(tokenizer->token_text(7), " ab");
  EXPECT_EQ(tokenizer->special().mask, 2);
  EXPECT_EQ(tokenizer->special().pad, 8);
  EXPECT_EQ(tokenizer->special().unknown, -1);
  EXPECT_EQ(ids_around(*tokenizer, 1), (Ids{0, -1, 1}));
  EXPECT_EQ(ids_around(*tokenizer, 2), (Ids{0, -1, 1, 1, -1, 1}));
  EXPECT_EQ(tokenizer->sequence().special_count(2), 4);
  for (const auto& step : tokenizer->sequence().steps(2)) EXPECT_EQ(step.type, 0);
  Json old = bpe_json();  // as the first files were
  old["model"].erase("type");
  EXPECT_EQ(load_tokenizer(write("tokenizer.json", old.dump()))->fingerprint(), tokenizer->fingerprint());
}

TEST_F(TokenizerFiles, VocabularyAndMergesAloneAreRobertasOrGpt2s) {
  write("vocab.json", bpe_vocabulary);
  write("merges.txt", "#version: 0.2\r\na b\r\nĠ ab\r\n");
  const auto roberta = load_tokenizer(folder_);
  EXPECT_EQ(roberta->tokenize("ab ab<mask>").ids, (Ids{5, 7, 2}));
  EXPECT_EQ(ids_around(*roberta, 2), (Ids{0, -1, 1, 1, -1, 1}));
  EXPECT_EQ(load_tokenizer(folder_ / "merges.txt")->fingerprint(), roberta->fingerprint());
  write("tokenizer_config.json",
        R"({"add_prefix_space": true, "mask_token": {"content": "<mask>", "lstrip": true}})");
  EXPECT_EQ(load_tokenizer(folder_)->tokenize("ab <mask>").ids, (Ids{7, 2})) << "its flags are read";
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "unk_token": "<pad>"})");
  const auto gpt2 = load_tokenizer(folder_);
  EXPECT_EQ(ids_around(*gpt2, 2), (Ids{-1, -1}));
  EXPECT_EQ(gpt2->special().cls, -1);
  EXPECT_EQ(gpt2->special().unknown, 8);
}

TEST_F(TokenizerFiles, TokensThatNoMergeMakesAreWarnedOf) {
  const auto warning = [&] {
    testing::internal::CaptureStderr();
    load_tokenizer(folder_);
    return testing::internal::GetCapturedStderr();
  };
  write("vocab.json", bpe_vocabulary);
  write("tokenizer_config.json", R"({"unk_token": "<pad>"})");
  write("merges.txt", "#version: 0.2\na b\nĠ ab\n");
  EXPECT_EQ(warning(), "");
  write("merges.txt", "#version: 0.2\na b\n");
  EXPECT_NE(
      warning().find("merges.txt: 1 of the 9 tokens cannot occur, because none of the 1 merges makes them"),
      std::string::npos);
  write("merges.txt", "");
  EXPECT_NE(
      warning().find("merges.txt: 2 of the 9 tokens cannot occur, because none of the 0 merges makes them"),
      std::string::npos);
  Json json = bpe_json();
  json["model"]["merges"] = Json::array();
  write("tokenizer.json", json.dump());
  EXPECT_NE(warning().find("tokenizer.json: 2 of the 10 tokens"), std::string::npos);
  json["model"]["ignore_merges"] = true;
  write("tokenizer.json", json.dump());
  EXPECT_EQ(warning(), "") << "words that are tokens are read without merges";
}

TEST_F(TokenizerFiles, WhatIsWrittenOfByteLevelBpeReadsTheSame) {
  const auto template_of = [](const char* second) {
    return Json::parse(std::string(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
      {"type": "TemplateProcessing",
       "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
       "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 2}},
                {"Sequence": {"id": "B", "type_id": 1}}],
       "special_tokens": {"</s>": {"id": "</s>", "ids": )") +
                       second + R"(, "tokens": ["</s>"]}}}]})");
  };
  std::vector<Json> files(5, bpe_json());
  files[1]["post_processor"] = template_of("[1]");
  files[2]["post_processor"] = nullptr;
  files[2]["normalizer"] = nullptr;
  files[2]["pre_tokenizer"]["use_regex"] = false;
  files[3]["post_processor"] = {{"type", "BertProcessing"}, {"cls", {"<s>", 0}}, {"sep", {"</s>", 1}}};
  files[3]["model"]["ignore_merges"] = true;
  files[4]["post_processor"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  files[4]["model"]["unk_token"] = "<pad>";
  files[4]["model"]["fuse_unk"] = true;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto tokenizer = load_tokenizer(write("tokenizer.json", files[i].dump()));
    const fs::path copy = folder_ / ("copy" + std::to_string(i));
    save_tokenizer(copy, *tokenizer, 77);
    const auto read = load_tokenizer(copy);
    EXPECT_EQ(read->fingerprint(), tokenizer->fingerprint()) << i;
    EXPECT_EQ(read->vocabulary(), tokenizer->vocabulary()) << i;
    EXPECT_EQ(read->sequence(), tokenizer->sequence()) << i;
    const auto& options = dynamic_cast<const text::ByteBpe&>(*read).options();
    const auto& wanted = dynamic_cast<const text::ByteBpe&>(*tokenizer).options();
    EXPECT_EQ(options.trim_offsets, wanted.trim_offsets) << i;
    if (wanted.trim_offsets) {
      EXPECT_EQ(options.trim_keeps_prefix, wanted.trim_keeps_prefix) << i;
    }
    EXPECT_EQ(read_json(copy / "tokenizer_config.json")["model_max_length"], 77);
    EXPECT_TRUE(fs::exists(copy / "vocab.json") && fs::exists(copy / "merges.txt"));
  }
  Json wrong = bpe_json();
  wrong["post_processor"] = template_of("[3]");
  EXPECT_NE(error_of(write("tokenizer.json", wrong.dump())).find("gives \"</s>\" the id 3, the vocabulary 1"),
            std::string::npos);
}

TEST_F(TokenizerFiles, ByteLevelBpeThatIsWrongIsRefusedWithTheRemedy) {
  const auto expect = [&](const char* pointer, const Json& value, const std::string& words) {
    Json changed = bpe_json();
    changed[Json::json_pointer(pointer)] = value;
    const std::string message = error_of(write("tokenizer.json", changed.dump()));
    EXPECT_NE(message.find(words), message.npos) << message;
    EXPECT_NE(message.find("tokenizer.json"), message.npos) << message;
  };
  expect("/model/merges/0", "a c", "merge 1: the merge of \"a\" and \"c\" needs the token \"c\"");
  expect("/model/merges/1", Json::array({"a", "a"}),
         "merge 2: the merge of \"a\" and \"a\" needs the token \"aa\"");
  expect("/model/merges/0", "a b a", "merge 1: expected two tokens with a blank between them");
  expect("/model/merges/0", "ab", "merge 1: expected two tokens");
  expect("/model/merges/0", 3, "merge 1: expected \"a b\" or");
  expect("/model/merges", nullptr, "no list \"merges\"");
  expect("/model/vocab/a", 4, "share the id 4");
  expect("/model/vocab/a", 30, "id 30");
  expect("/model/dropout", 0.1, "\"dropout\" is 0.1; byte-level BPE is supported without it; set it to null");
  expect("/model/byte_fallback", true, "\"byte_fallback\"");
  expect("/model/unk_token", "<unk>", "\"<unk>\" is missing");
  expect("/normalizer/type", "NFKC", "the normalizer is NFKC; supported: none or NFC");
  expect("/pre_tokenizer/type", "Whitespace", "the pre_tokenizer is Whitespace; supported: ByteLevel");
  expect("/post_processor/cls/0", "<cls>",
         "\"<cls>\", which sequences need, is not in the vocabulary; add it");
  expect("/post_processor/cls/1", 3, "gives \"<s>\" the id 3, the vocabulary 0");
  expect("/added_tokens/1/id", 12, "expected 9, the next one");
}

TEST_F(TokenizerFiles, ABrokenPairOfVocabularyAndMergesIsRefusedWithTheLine) {
  write("vocab.json", bpe_vocabulary);
  const auto expect = [&](const std::string& words) {
    const std::string message = error_of(folder_);
    EXPECT_NE(message.find(words), message.npos) << message;
    if (words.starts_with("merges.txt:")) {
      EXPECT_EQ(message.find("vocab.json"), message.npos) << message << " names two files";
    }
  };
  expect("there is no merges.txt");
  write("merges.txt", "#version: 0.2\na b\na c\n");
  expect("merges.txt:3: the merge of \"a\" and \"c\" needs the token \"c\"");
  write("merges.txt", "#version: 0.2\n\na b\n");
  expect("merges.txt:2: expected two tokens");
  write("merges.txt", "# a comment\na b\n");
  expect("merges.txt:1: expected two tokens");
  write("merges.txt", "a b\n");
  write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  EXPECT_EQ(load_tokenizer(folder_)->special().cls, 3) << "behind the vocabulary, as in transformers";
  write("vocab.json", R"({"a": 0, "b": 0, "ab": 2})");
  expect("share the id 0");
  write("vocab.json", "[1]");
  expect("expected an object of tokens and ids");
}

TEST_F(TokenizerFiles, DamagedByteLevelBpeIsRefusedOrReadNeverACrash) {
  std::mt19937_64 random(11);
  const std::string json = bpe_json().dump(), merges = "#version: 0.2\na b\nĠ ab\n";
  const Json whole = bpe_json().flatten();
  std::vector<std::string> places;
  for (const auto& [place, value] : whole.items()) places.push_back(place);
  int taken = 0, refused = 0;
  for (int round = 0; round < 600; ++round) {
    std::string damaged = round % 3 == 0 ? json : round % 3 == 1 ? merges : std::string();
    for (unsigned n = 1 + random() % 3; n > 0 && !damaged.empty(); --n) {
      const size_t at = random() % damaged.size();
      if (random() % 3 == 0)
        damaged.resize(at);
      else if (random() % 2)
        damaged[at] = static_cast<char>(random());
      else
        damaged.erase(at, 1 + random() % 20);
    }
    if (round % 3 == 2) {
      Json changed = bpe_json();
      changed[Json::json_pointer(places[random() % places.size()])] = strange_value(random);
      damaged = changed.dump();
    }
    write("vocab.json", bpe_vocabulary);
    const fs::path path = write(round % 3 == 1 ? "merges.txt" : "tokenizer.json", damaged);
    try {
      const auto tokenizer = load_tokenizer(path);
      ++taken;
      for (const int32_t id : tokenizer->tokenize("a ab <x> <s> zz").ids)
        EXPECT_TRUE(id >= 0 && id < tokenizer->size()) << damaged;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(taken, 60);
  EXPECT_GT(refused, 150);
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
