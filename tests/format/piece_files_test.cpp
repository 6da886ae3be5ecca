// Files of tokenisers of pieces: tokenizer.json with Unigram or BPE of characters, and models of SentencePiece.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "funicular/format/base64.h"
#include "funicular/format/sentencepiece_model.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/text/piece_tokenizer.h"
#include "funicular/text/unigram.h"
#include "scratch.h"
#include "tests/fuzz_rounds.h"

namespace funicular::format {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kUnigramJson = R"({"version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 0, "content": "<s>", "special": true}, {"id": 8, "content": "<mask>", "special": true, "lstrip": true}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Strip", "strip_left": false, "strip_right": true},
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Replace", "pattern": {"String": "``"}, "content": "b"}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}]},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
  "decoder": {"type": "Metaspace"},
  "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": false,
            "vocab": [["<s>", 0.0], ["<pad>", 0], ["</s>", 0.0], ["<unk>", 0.0], ["▁", -2.5], ["a", -1.25], ["▁a", -2.0], ["b", -3]]}})";

constexpr const char* kGemmaJson = R"({"version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 0, "content": "<pad>", "special": true}, {"id": 3, "content": "<mask>", "special": false}],
  "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
  "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false},
  "post_processor": null, "decoder": null,
  "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": {"<pad>": 0, "<unk>": 1, "a": 2, "<mask>": 3, "b": 4, "▁": 5, "ab": 6, "▁ab": 7, "<0xC3>": 8, "<0xA9>": 9},
            "merges": ["a b", ["▁", "ab"]]}})";

class PieceFiles : public testing::Test {
 protected:
  Ids ids(std::string_view text) const { return load_tokenizer(scratch_.path())->tokenize(text).ids; }
  /// The message for a tokenizer.json with one value changed.
  std::string error_with(const char* text, const char* place, const Json& value) const {
    Json json = parse_json(text, "test");
    json[Json::json_pointer(place)] = value;
    scratch_.put("tokenizer.json", json.dump());
    return error_of([&] { load_tokenizer(scratch_.path()); });
  }
  Scratch scratch_;
};

TEST_F(PieceFiles, UnigramIsReadWithItsRulesAndWrittenAsItWas) {
  scratch_.put("tokenizer.json", kUnigramJson);
  EXPECT_EQ(ids("a\u3000a  ``"), (Ids{6, 6, 4, 7}));
  EXPECT_EQ(ids("aa c<mask>"), (Ids{6, 5, 4, 3, 8}));
  const auto tokenizer = load_tokenizer(scratch_.path());
  EXPECT_EQ(tokenizer->type(), "Unigram");
  EXPECT_EQ(tokenizer->special().pad, 1);
  EXPECT_EQ(tokenizer->special().unknown, 3);
  EXPECT_EQ(tokenizer->special().cls, 0);
  EXPECT_EQ(tokenizer->special().sep, 2);
  EXPECT_EQ(tokenizer->special().mask, 8);
  save_tokenizer(scratch_ / "copy", *tokenizer);
  const auto again = load_tokenizer(scratch_ / "copy");
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  EXPECT_TRUE(again->sequence() == tokenizer->sequence());
}

TEST_F(PieceFiles, BpeWithByteFallbackIsReadAndWritten) {
  scratch_.put("tokenizer.json", kGemmaJson);
  EXPECT_EQ(ids("ab ab\u00E9"), (Ids{6, 7, 8, 9}));
  const auto tokenizer = load_tokenizer(scratch_.path());
  EXPECT_EQ(tokenizer->description(), "BPE with byte fallback, 10 tokens");
  EXPECT_EQ(tokenizer->token_text(8), "\xC3");
  save_tokenizer(scratch_ / "copy", *tokenizer);
  EXPECT_EQ(load_tokenizer(scratch_ / "copy")->fingerprint(), tokenizer->fingerprint());
}

TEST_F(PieceFiles, WhatIsNotThereIsRefusedByName) {
  const auto says = [](const std::string& error, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  says(error_with(kUnigramJson, "/normalizer", {{"type", "BertNormalizer"}}),
       {"tokenizer.json", "normalizer is BertNormalizer", "Precompiled"});
  says(error_with(kUnigramJson, "/normalizer/normalizers/2/pattern/Regex", "[a-z]+"),
       {"regular expression", "[a-z]+", "{2,}"});
  says(error_with(kUnigramJson, "/pre_tokenizer/pretokenizers/0/type", "Digits"),
       {"pre_tokenizer is Digits", "take a model whose tokeniser docs/reference/tokenizers.md lists"});
  says(error_with(kUnigramJson, "/pre_tokenizer/pretokenizers/1/prepend_scheme", "last"),
       {"prepend_scheme", "\"last\""});
  says(error_with(kUnigramJson, "/model/unk_id", nullptr), {"unk_id", "expected an id from 0 to 7"});
  says(error_with(kUnigramJson, "/model/vocab", Json::object()), {"no list \"vocab\""});
  says(error_with(kUnigramJson, "/model/vocab/4", "a"), {"piece 4", "expected a text and a score"});
  says(error_with(kUnigramJson, "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}),
       {"base64"});
  says(error_with(kUnigramJson, "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}),
       {"table of characters"});
  says(error_with(kGemmaJson, "/model/dropout", 0.1), {"dropout"});
  says(error_with(kGemmaJson, "/model/unk_token", "<q>"), {"<q>", "missing from the vocabulary"});
  says(error_with(kGemmaJson, "/pre_tokenizer/pattern", {{"Regex", "\\s"}}), {"pattern of Split"});
  scratch_.put("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  says(error_with(kUnigramJson, "/version", "1.0"),
       {"the model is Unigram", "BertTokenizer", "PreTrainedTokenizerFast"});
}

TEST_F(PieceFiles, ScoresAreThoseThatTokenizersReads) {
  Json json = parse_json(kUnigramJson, "test");
  std::string text = json.dump();
  text.replace(text.find("-1.25"), 5, "-7.4715776443481445");
  scratch_.put("tokenizer.json", text);
  const auto tokenizer = load_tokenizer(scratch_.path());
  const auto& pieces = dynamic_cast<const text::PieceTokenizer&>(*tokenizer);
  const auto& model = dynamic_cast<const text::Unigram&>(pieces.model());
  EXPECT_EQ(model.scores()[5], -7.471577644348144) << "17 digits are divided by a power of ten";
  EXPECT_NE(model.scores()[5], -7.4715776443481445);
  EXPECT_EQ(model.scores()[4], -2.5);
}

TEST_F(PieceFiles, LongNumbersAreThoseThatTokenizersReads) {
  const auto score = [&](const char* number) {
    std::string text = parse_json(kUnigramJson, "test").dump();
    text.replace(text.find("-1.25"), 5, number);
    scratch_.put("tokenizer.json", text);
    const auto tokenizer = load_tokenizer(scratch_.path());
    const auto& pieces = dynamic_cast<const text::PieceTokenizer&>(*tokenizer);
    return dynamic_cast<const text::Unigram&>(pieces.model()).scores()[5];
  };
  EXPECT_EQ(score("-0.0000000000000000000012345678901234567"), -1.2345678901234568e-21)
      << "zeros in front are no digits";
  EXPECT_EQ(score("-7.47157764434814451234567"), -7.4715776443481445) << "digits beyond 64 bits are left out";
  EXPECT_EQ(score("-12345678901234567890123e-5"), -1.2345678901234566e+17);
  EXPECT_EQ(score("-1.5e-99999999999"), 0.0);
}

TEST_F(PieceFiles, SettingsThatTokenizersRefusesAreRefused) {
  const auto says = [&](const char* place, const Json& value, const char* part) {
    const std::string error = error_with(kUnigramJson, place, value);
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  const char* const marks = "/pre_tokenizer";
  says(marks, {{"type", "Metaspace"}, {"replacement", "__"}}, "one character");
  says(marks, {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", nullptr}}, "prepend_scheme");
  says(
      marks,
      {{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}, {"prepend_scheme", "first"}},
      "add_prefix_space");
  says(marks, {{"type", "Punctuation"}, {"behavior", nullptr}}, "behavior");
  says(marks,
       {{"type", "Split"},
        {"pattern", {{"String", "a"}, {"Regex", "b"}}},
        {"behavior", "Isolated"},
        {"invert", false}},
       "pattern");
  says("/normalizer", {{"type", "Prepend"}, {"prepend", ""}}, "prepend of Prepend is empty");
}

TEST_F(PieceFiles, AddedTokensKeepTheIdsThatTheFileStates) {
  Json json = parse_json(kUnigramJson, "test");
  const auto token = [](int id, const char* content) {
    return Json{{"id", id}, {"content", content}, {"special", true}};
  };
  json["added_tokens"] = {token(9, "<x>"), token(8, "<mask>")};
  scratch_.put("tokenizer.json", json.dump());
  const auto tokenizer = load_tokenizer(scratch_.path());
  EXPECT_EQ(ids("<x><mask>"), (Ids{9, 8}));
  EXPECT_EQ(tokenizer->special().mask, 8);
  EXPECT_EQ(tokenizer->vocabulary()[9], "<x>");
}

TEST_F(PieceFiles, TheDecoderOfBytesIsWritten) {
  scratch_.put("tokenizer.json", kGemmaJson);
  save_tokenizer(scratch_ / "copy", *load_tokenizer(scratch_.path()));
  const Json json = parse_json(read_file(scratch_ / "copy" / "tokenizer.json"), "copy");
  ASSERT_EQ(json["decoder"]["type"], "Sequence");
  ASSERT_EQ(json["decoder"]["decoders"].size(), 3u) << "no text has a blank before it";
  EXPECT_EQ(json["decoder"]["decoders"][0]["type"], "Replace");
  EXPECT_EQ(json["decoder"]["decoders"][1]["type"], "ByteFallback");
}

TEST_F(PieceFiles, OlderFilesOfMetaspaceSayAddPrefixSpace) {
  Json json = parse_json(kUnigramJson, "test");
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", false}};
  scratch_.put("tokenizer.json", json.dump());
  EXPECT_EQ(ids("a a"), (Ids{5, 6}));
}

TEST(Base64, IsReadAndWritten) {
  std::string bytes, back;
  for (int size = 0; size < 300; ++size) {
    ASSERT_TRUE(from_base64(to_base64(bytes), back));
    ASSERT_EQ(back, bytes);
    bytes.push_back(static_cast<char>(size * 37));
  }
  EXPECT_EQ(to_base64("Ma"), "TWE=");
  for (const char* wrong : {"TWE", "TW=E", "TWE?", "====", "T==="})
    EXPECT_FALSE(from_base64(wrong, back)) << wrong;
}

// ---- models of SentencePiece

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  return bytes + static_cast<char>(value);
}

std::string field(uint32_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string field(uint32_t number, uint64_t value) {
  return varint(number << 3) + varint(value);
}

std::string piece(const std::string& text, float score, int type = 1) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &score, 4);
  return field(1, field(1, text) + varint(2 << 3 | 5) + bytes +
                      (type == 1 ? "" : field(3, static_cast<uint64_t>(type))));
}

/// As SentencePiece writes it: <unk>, <s>, </s>, then pieces.
std::string model_bytes(int type = 1) {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("▁", -2.5f) +
         piece("a", -1.25f) + piece("▁a", -2.0f) + piece("<u>", 0, 4) +
         field(2, field(3, static_cast<uint64_t>(type)) + field(40, uint64_t{0})) +
         field(3, field(1, "identity")) + field(99, "later");
}

TEST_F(PieceFiles, AModelOfSentencePieceHasTheIdsOfItsClass) {
  scratch_.put("sentencepiece.bpe.model", model_bytes());
  EXPECT_EQ(ids("a aa<mask>"), (Ids{6, 6, 5, 8})) << "XLM-R: four tokens of its own, <mask> behind";
  EXPECT_EQ(load_tokenizer(scratch_.path())->special().pad, 1);
  EXPECT_EQ(load_tokenizer(scratch_.path())->sequence().special_count(2), 4);
  scratch_.put("config.json", R"({"model_type": "camembert"})");
  EXPECT_EQ(ids("a b"), (Ids{9, 7, 3})) << "CamemBERT: five, and <s> of the model behind";
  EXPECT_EQ(load_tokenizer(scratch_.path())->special().cls, 5);
  scratch_.put("config.json", R"({"model_type": "bert"})");
  scratch_.put("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer"})");
  EXPECT_EQ(ids("a <u>"), (Ids{6, 7}))
      << "a BERT with XLM-R's tokeniser; pieces of the user are found in texts";
}

TEST_F(PieceFiles, OtherModelsAreNotReadByTheNameOfTheirFile) {
  scratch_.put("sentencepiece.bpe.model", model_bytes());
  for (const char* type : {"mbart", "mt5", "bert", "pegasus"}) {
    scratch_.put("config.json", std::string(R"({"model_type": ")") + type + "\"}");
    const std::string error = error_of([&] { load_tokenizer(scratch_.path()); });
    EXPECT_NE(error.find(type), std::string::npos) << error;
    EXPECT_NE(error.find("tokenizer_class"), std::string::npos) << error;
  }
  for (const char* type : {"xlm-roberta-xl", "gte", "new"}) {
    scratch_.put("config.json", std::string(R"({"model_type": ")") + type + "\"}");
    EXPECT_EQ(ids("a"), (Ids{6})) << type;
  }
  scratch_.put("config.json", R"({"model_type": "xlm-roberta"})");
  scratch_.put("tokenizer_config.json", R"({"tokenizer_class": "TokenizersBackend"})");
  EXPECT_EQ(ids("a"), (Ids{6}));
}

TEST_F(PieceFiles, TheClassChoosesAmongTheFiles) {
  scratch_.put("sentencepiece.bpe.model", model_bytes());
  scratch_.put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
  scratch_.put("tokenizer_config.json", R"({"tokenizer_class": "XLMRobertaTokenizer"})");
  EXPECT_EQ(load_tokenizer(scratch_.path())->type(), "Unigram");
  scratch_.put("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  EXPECT_EQ(load_tokenizer(scratch_.path())->type(), "WordPiece");
}

TEST_F(PieceFiles, OnlyTheMaskOfCamembertTakesTheBlankBeforeIt) {
  const auto takes_blank = [&] {
    const auto tokenizer = load_tokenizer(scratch_.path());
    for (const text::AddedToken& token : tokenizer->added_tokens())
      if (token.content == "<mask>") return token.lstrip;
    ADD_FAILURE() << "no mask";
    return false;
  };
  scratch_.put("sentencepiece.bpe.model", model_bytes());
  scratch_.put("config.json", R"({"model_type": "xlm-roberta"})");
  EXPECT_FALSE(takes_blank());
  scratch_.put("config.json", R"({"model_type": "camembert"})");
  EXPECT_TRUE(takes_blank());
  scratch_.put("tokenizer_config.json", R"({"mask_token": "<mask>"})");
  EXPECT_TRUE(takes_blank());
  scratch_.put("tokenizer_config.json", R"({"mask_token": {"content": "<mask>", "lstrip": false}})");
  EXPECT_FALSE(takes_blank());
}

TEST_F(PieceFiles, SettingsThatTheClassReplacesAreRead) {
  const SentencePieceModel plain = parse_sentencepiece_model(model_bytes(), "test");
  EXPECT_TRUE(plain.add_dummy_prefix && plain.remove_extra_whitespaces && plain.escape_whitespaces);
  const std::string settings =
      field(3, field(3, uint64_t{0}) + field(4, uint64_t{0}) + field(5, uint64_t{0})) +
      field(2, field(24, uint64_t{1}));
  const SentencePieceModel model = parse_sentencepiece_model(model_bytes() + settings, "test");
  EXPECT_FALSE(model.add_dummy_prefix || model.remove_extra_whitespaces || model.escape_whitespaces);
  EXPECT_TRUE(model.treat_whitespace_as_suffix);
}

TEST_F(PieceFiles, AlbertAndDebertaHaveTheirNormalisers) {
  const std::string own = piece("<pad>", 0, 3) + piece("<unk>", 0, 2) + piece("[CLS]", 0, 3) +
                          piece("[SEP]", 0, 3) + piece("[MASK]", 0, 3) + piece("▁a", -2.0f) +
                          piece("\"", -1) + field(2, field(40, uint64_t{1}));
  scratch_.put("spiece.model", own);
  EXPECT_EQ(ids("\u00C1``"), (Ids{5, 6}));
  const auto albert = load_tokenizer(scratch_.path());
  EXPECT_EQ(albert->special().mask, 4);
  EXPECT_EQ(albert->special().cls, 2);
  fs::rename(scratch_ / "spiece.model", scratch_ / "spm.model");
  scratch_.put("tokenizer_config.json",
               R"({"do_lower_case": true, "pad_token": "<pad>", "unk_token": "<unk>"})");
  EXPECT_EQ(ids(" A "), (Ids{5}));
}

/// A model of BPE: bytes of "é", and pieces whose merges are found from their texts.
std::string merging_model() {
  std::string bytes = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) +
                      piece("<0xC3>", 0, 6) + piece("<0xA9>", 0, 6);
  float score = 0;
  for (const char* text : {"ab", "▁a", "abc", "▁ab", "▁", "a", "b", "c"}) bytes += piece(text, score--);
  return bytes + piece("<u>", 0, 4) + field(2, field(3, uint64_t{2}) + field(35, uint64_t{1}));
}

TEST_F(PieceFiles, AModelOfBpeMergesPiecesInTheOrderOfTheirIds) {
  scratch_.put("tokenizer.model", merging_model());
  scratch_.put("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  EXPECT_EQ(ids("abc"), (Ids{9, 7})) << "ab comes before a mark and a";
  EXPECT_EQ(ids("a"), (Ids{6}));
  EXPECT_EQ(ids("ab"), (Ids{8})) << "a mark and ab merge as well as a mark with a, and b";
  EXPECT_EQ(ids("c c"), (Ids{9, 12, 9, 12}));
  EXPECT_EQ(ids("cé"), (Ids{9, 12, 3, 4})) << "bytes stand for what has no piece";
  EXPECT_EQ(ids("cx"), (Ids{9, 12})) << "a character without bytes is left out";
  EXPECT_EQ(ids("<s>a<u>a"), (Ids{1, 10, 13, 10})) << "a mark at the beginning of the text alone";
  EXPECT_EQ(load_tokenizer(scratch_.path())->sequence().special_count(2), 0);
}

TEST_F(PieceFiles, SettingsOfLlamaHold) {
  scratch_.put("tokenizer.model", merging_model());
  const auto with = [&](const char* settings) {
    scratch_.put("tokenizer_config.json",
                 std::string(R"({"tokenizer_class": "LlamaTokenizer", )") + settings + "}");
  };
  with(R"("legacy": true)");
  EXPECT_EQ(ids("<s>a<u>a"), (Ids{1, 6, 13, 6})) << "a mark behind each added token";
  with(R"("add_prefix_space": false)");
  EXPECT_EQ(ids("a b"), (Ids{10, 9, 11}));
  with(R"("add_bos_token": true, "add_eos_token": true)");
  using Step = text::SequenceTemplate::Step;
  const auto tokenizer = load_tokenizer(scratch_.path());
  const auto steps = tokenizer->sequence().steps(2);
  EXPECT_EQ(std::vector(steps.begin(), steps.end()),
            (std::vector{Step::special(1, 0), Step::text(0, 0), Step::special(2, 0), Step::special(1, 1),
                         Step::text(1, 1), Step::special(2, 1)}));
  EXPECT_EQ(tokenizer->special().cls, 1);
  EXPECT_EQ(tokenizer->special().sep, 2);
  const auto around = [&](const char* settings) {
    with(settings);
    std::vector<int32_t> found;
    const auto read = load_tokenizer(scratch_.path());
    for (const Step& step : read->sequence().steps(1))
      if (step.column < 0) found.push_back(step.token);
    return found;
  };
  EXPECT_EQ(
      around(R"("add_bos_token": true, "add_eos_token": true, "cls_token": "</s>", "sep_token": "<s>")"),
      (Ids{1, 2}))
      << "bos_token and eos_token stand around a text, whatever the other tokens";
  EXPECT_EQ(around(R"("add_bos_token": true, "add_eos_token": true, "bos_token": null)"), (Ids{2}));
  EXPECT_EQ(around(R"("add_bos_token": true, "add_eos_token": true, "eos_token": null)"), (Ids{1}));
}

TEST_F(PieceFiles, GemmaPutsNoMarkBeforeTextsAndHasTokensOfItsOwn) {
  scratch_.put("tokenizer.model", merging_model());
  scratch_.put("config.json", R"({"model_type": "gemma"})");
  EXPECT_EQ(ids("a ab<bos>é\u4E2D\u4E2D"), (Ids{10, 8, 14, 3, 4, 0})) << "<bos> follows the model's pieces";
  const auto tokenizer = load_tokenizer(scratch_.path());
  EXPECT_EQ(tokenizer->special().cls, 14);
  EXPECT_EQ(tokenizer->special().sep, 15);
  EXPECT_EQ(tokenizer->special().mask, 17);
}

TEST_F(PieceFiles, TheClassAndTheTypeOfAModelOfSentencePieceBelongTogether) {
  scratch_.put("tokenizer.model", model_bytes());
  const auto error = [&] { return error_of([&] { load_tokenizer(scratch_.path()); }); };
  scratch_.put("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  EXPECT_NE(error().find("expected bpe (2) for LlamaTokenizer"), std::string::npos);
  scratch_.put("tokenizer.model", merging_model());
  for (const char* name : {"LlamaTokenizer", "GemmaTokenizer"}) {
    scratch_.put("tokenizer_config.json", std::string(R"({"tokenizer_class": ")") + name + "\"}");
    EXPECT_EQ(error(), "");
    scratch_.put("config.json", R"({"model_type": "modernbert"})");
    EXPECT_NE(error().find("which transformers ignores beside the model_type modernbert"), std::string::npos);
    fs::remove(scratch_ / "config.json");
  }
  fs::remove(scratch_ / "tokenizer_config.json");
  scratch_.put("config.json", R"({"model_type": "llama"})");
  EXPECT_NE(error().find("config.json has the model_type llama, so the rules"), std::string::npos)
      << "transformers reads it by other rules than LlamaTokenizer's";
  scratch_.put("config.json", R"({"model_type": "xlm-roberta"})");
  EXPECT_NE(error().find("expected unigram (1) for XLMRobertaTokenizer"), std::string::npos);
  fs::remove(scratch_ / "config.json");
  EXPECT_NE(error().find("name no tokenizer class"), std::string::npos)
      << "many classes have a tokenizer.model";
}

TEST_F(PieceFiles, OtherModelsOfSentencePieceAreRefused) {
  const auto error = [&](const char* name, const std::string& bytes) {
    for (const char* other : {"spiece.model", "sentencepiece.bpe.model", "tokenizer.model"})
      fs::remove(scratch_ / other);
    scratch_.put(name, bytes);
    return error_of([&] { load_tokenizer(scratch_.path()); });
  };
  EXPECT_NE(error("spiece.model", model_bytes(2)).find("type 2; expected unigram"), std::string::npos);
  EXPECT_NE(error("tokenizer.model", model_bytes()).find("tokenizer_class"), std::string::npos);
  EXPECT_NE(error("spiece.model", "").find("no pieces"), std::string::npos);
  const std::string cut = model_bytes();
  EXPECT_NE(error("spiece.model", cut.substr(0, 5)).find("ends within"), std::string::npos);
  EXPECT_NE(error("spiece.model", "{\"json\": 1}").find("is no SentencePiece model"), std::string::npos);
  EXPECT_NE(
      error("spiece.model", "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 5\n")
          .find("is a Git LFS pointer; expected a SentencePiece model: the file itself was not downloaded"),
      std::string::npos);
  EXPECT_NE(error("spiece.model", piece("a", 0, 9)).find("piece 0 has the type 9"), std::string::npos);
  const std::string unlisted = error_with(kUnigramJson, "/post_processor/single/0/SpecialToken/id", "<zz>");
  EXPECT_TRUE(unlisted.ends_with(
      "the key \"<zz>\" is missing; copy the file again, or save the tokeniser with transformers"))
      << unlisted;
}

TEST_F(PieceFiles, SettingsThatTokenizerJsonContradictsAreToldOf) {
  const auto told = [&](const char* settings) {
    scratch_.put("tokenizer.json", kUnigramJson);
    scratch_.put("tokenizer_config.json", settings);
    testing::internal::CaptureStderr();
    load_tokenizer(scratch_.path());
    return testing::internal::GetCapturedStderr();
  };
  const std::string all = told(
      R"({"do_lower_case": true, "keep_accents": false, "add_prefix_space": false, "split_by_punct": true})");
  EXPECT_NE(
      all.find("tokenizer_config.json: tokenizer.json says otherwise and holds: do_lower_case is true, and "
               "there it is false; keep_accents is false, and there it is true; add_prefix_space is false, "
               "and there it is true; split_by_punct is true, and there it is false\n"),
      std::string::npos)
      << all;
  EXPECT_EQ(
      told(
          R"({"do_lower_case": false, "keep_accents": true, "add_prefix_space": true, "split_by_punct": false})"),
      "");
}

// ---- damage

TEST_F(PieceFiles, DamagedOnesAreReadInRangeOrRefused) {
  std::mt19937_64 random(51);
  const std::map<std::string, std::string> whole{{"tokenizer.json", kUnigramJson},
                                                 {"spiece.model", model_bytes()}};
  std::map<std::string, int> taken, refused;
  for (int round = 0; round < fuzz_rounds(400); ++round) {
    const bool json = random() % 3 != 0, gemma = json && random() % 2 == 0;
    const std::string name = json ? "tokenizer.json" : "spiece.model", kind = gemma ? "gemma" : name;
    std::string text = gemma ? kGemmaJson : whole.at(name);
    if (json && random() % 4 != 0) {
      Json value = Json::parse(text);
      const Json flat = value.flatten();
      auto place = flat.begin();
      std::advance(place, static_cast<ptrdiff_t>(random() % flat.size()));
      value[Json::json_pointer(place.key())] = strange_value(random);
      text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    } else {
      text = mutate(text, random);
    }
    fs::remove_all(scratch_.path());
    fs::create_directories(scratch_.path());
    scratch_.put(name, text);
    SCOPED_TRACE(kind + "\n" + text);
    std::unique_ptr<text::Tokenizer> tokenizer;
    const std::string error = error_of([&] { tokenizer = load_tokenizer(scratch_.path()); });
    if (!tokenizer) {
      EXPECT_NE(error.find(name), std::string::npos) << error;
      ++refused[kind];
      continue;
    }
    ++taken[kind];
    for (const char* sample : {"a ab b  \u00E9 <mask>", "", "\xFF ``a▁b <s>"}) {
      const text::TokenizedText found = tokenizer->tokenize(sample);
      text::TokenizedText slow;
      std::vector<text::CharacterRange> ranges;
      tokenizer->tokenize(sample, slow, ranges);
      EXPECT_EQ(found.ids, slow.ids);
      for (const int32_t id : found.ids) {
        ASSERT_TRUE(id >= 0 && id < tokenizer->size()) << id;
        tokenizer->token_text(id);
      }
    }
    if (testing::Test::HasFailure()) break;
  }
  for (const char* kind : {"tokenizer.json", "gemma", "spiece.model"}) {
    EXPECT_GT(taken[kind], 0) << kind;
    EXPECT_GT(refused[kind], 0) << kind;
  }
}

}  // namespace
}  // namespace funicular::format
