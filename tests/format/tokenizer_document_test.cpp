// The vocabulary of a tokenizer.json taken from the text beside the JSON values is the one that the values have.

#include "funicular/format/tokenizer_document.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/format/tokenizer_json.h"

namespace funicular::format {
namespace {

constexpr std::string_view kWhole =
    R"({"version": "1.0", "truncation": null, "list": [1, -2, 2.5e3, true, {"vocab": {"a": 1}}, []],
        "vocab": {"x": 0}, "model": {"type": "WordPiece", "inner": {"vocab": {"b": 7}},
        "vocab": {"[UNK]": 1, "a": 0, "\u00e9\n\"": 3, "##b": 2}, "after": "it"}, "end": {}})";

class DocumentTest : public testing::Test {
 protected:
  ~DocumentTest() override { fs::remove(path_); }
  TokenizerDocument read(std::string_view text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return read_tokenizer_document(path_);
  }
  const fs::path path_ =
      fs::path(testing::TempDir()) / ("funicular-tokenizer-document-" + std::to_string(::getpid()) + ".json");
};

/// Tokens, or what is wrong.
std::string outcome(const auto& tokens_of) {
  std::string all;
  try {
    for (const std::string& token : tokens_of()) all += token + "|";
  } catch (const InputError& error) {
    all = error.what();
  }
  return all;
}

TEST_F(DocumentTest, HoldsTheVocabularyByIdsAndTheRestAsItStands) {
  TokenizerDocument document = read(kWhole);
  EXPECT_EQ(document.vocabulary, (std::vector<std::string>{"a", "[UNK]", "##b", "\u00e9\n\""}));
  Json expected = parse_json(kWhole, "");
  expected["model"]["vocab"] = Json::object();
  EXPECT_EQ(document.root, expected);
  EXPECT_EQ(take_vocabulary(document, "file").size(), 4u);
}

TEST_F(DocumentTest, WhatIsUnusualIsReadAsAWholeAndRefusedThere) {
  const auto vocabulary = [&](const std::string& value) { return "{\"model\": {\"vocab\": " + value + "}}"; };
  for (const char* value :
       {R"({"a": 0, "b": 4})", R"({"a": 0, "b": 0})", R"({"a": 0, "b": -1})", R"({"a": 0, "b": 1.0})",
        R"({"a": 0, "b": "1"})", R"({"a": 0, "b": [1]})", R"({"a": 0, "b": {}})", R"(["a", "b"])", R"("a")",
        "7", R"({"a": 0, "b": 18446744073709551615})"}) {
    TokenizerDocument document = read(vocabulary(value));
    EXPECT_TRUE(document.vocabulary.empty()) << value;
    EXPECT_EQ(document.root, parse_json(vocabulary(value), ""));
    EXPECT_THROW(take_vocabulary(document, "file"), InputError) << value;
  }
  TokenizerDocument none = read("{\"model\": {}}"),
                    twice = read(R"({"model": {"vocab": {"a": 0}, "vocab": {"b": 0}}})");
  EXPECT_THROW(take_vocabulary(none, "file"), InputError);
  EXPECT_EQ(take_vocabulary(twice, "file"), (std::vector<std::string>{"b"})) << "the last one, as ever";
  TokenizerDocument gap = read(vocabulary(R"({"a": 0, "b": 2})"));
  EXPECT_EQ(take_vocabulary(gap, "file"), (std::vector<std::string>{"a", "[id 1 unused: ]", "b"}));
}

TEST_F(DocumentTest, DeepNestingAndWrongTextAreRefusedAsElsewhere) {
  for (const std::string& text : {std::string(100'000, '['), std::string(kWhole.substr(0, 200)),
                                  std::string(), std::string("{\"a\": 1e999}"), std::string(kWhole) + "x"})
    EXPECT_EQ(outcome([&] { return read(text).vocabulary; }),
              outcome([&] { return parse_json(text, path_.string()), std::vector<std::string>(); }));
}

TEST_F(DocumentTest, DamagedFilesGiveWhatTheWholeTextGives) {
  std::mt19937 draw(5);
  int read_aside = 0;
  for (int round = 0; round < 600; ++round) {
    std::string text(kWhole);
    for (int change = 0; change < 1 + round % 3; ++change) {
      const size_t at = draw() % text.size();
      if (round % 5 == 0)
        text.erase(at, 1 + draw() % 3);
      else if (round % 2 == 0)
        text[at] = "{}[]\":,0123456789ab\\-"[draw() % 21];
      else
        text[at] = static_cast<char>(text[at] ^ (1 << draw() % 8));
    }
    const std::string expected = outcome([&] {
      TokenizerDocument whole{parse_json(text, path_.string()), {}};
      if (!whole.root.is_object() || !whole.root.contains("model") || !whole.root["model"].is_object())
        throw InputError("test", "no model");
      return take_vocabulary(whole, "file");
    });
    EXPECT_EQ(outcome([&] {
                TokenizerDocument document = read(text);
                read_aside += !document.vocabulary.empty();
                if (!document.root.is_object() || !document.root.contains("model") ||
                    !document.root["model"].is_object())
                  throw InputError("test", "no model");
                return take_vocabulary(document, "file");
              }),
              expected)
        << text;
  }
  EXPECT_GT(read_aside, 50);
}

}  // namespace
}  // namespace funicular::format
