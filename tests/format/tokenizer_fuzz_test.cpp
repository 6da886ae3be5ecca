// Damaged folders of tokenisers: each is refused, or read so that every token of its files is there and every id in
// range.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/visible.h"
#include "funicular/format/tokenizer_files.h"
#include "funicular/text/byte_bpe.h"
#include "funicular/text/word_piece.h"
#include "scratch.h"
#include "tests/fuzz_rounds.h"

namespace funicular::format {
namespace {

using Folder = std::map<std::string, std::string>;  ///< contents of files by name
using Ids = std::vector<int32_t>;

// ---- whole folders

constexpr const char* kWordPieceJson = R"({"version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 0, "content": "[PAD]", "special": true}, {"id": 1, "content": "[UNK]", "special": true},
                   {"id": 9, "content": "<x>", "lstrip": true, "normalized": true}],
  "normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": null, "clean_text": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
             {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                       "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6, "ab": 7, "\u00e9": 8}}})";

constexpr const char* kBpeJson = R"({"version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 0, "content": "<s>", "special": true}, {"id": 9, "content": "<x>", "lstrip": true}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false},
    {"type": "TemplateProcessing",
     "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
     "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 2}},
              {"Sequence": {"id": "B", "type_id": 1}}],
     "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]},
                        "</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}]},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": "",
            "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": {"<s>": 0, "</s>": 1, "<mask>": 2, "a": 3, "b": 4, "ab": 5, "Ġ": 6, "Ġab": 7, "<pad>": 8},
            "merges": ["a b", ["Ġ", "ab"]]}})";

constexpr const char* kFuzzVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\nab\n\u00e9\nzz\n";

const std::vector<Folder>& whole_folders() {
  static const Folder of_bert{
      {"config.json", R"({"model_type": "bert", "vocab_size": 12})"},
      {"tokenizer_config.json",
       R"({"tokenizer_class": "BertTokenizer", "do_lower_case": true, "strip_accents": null, "tokenize_chinese_chars": true,
           "mask_token": {"content": "[MASK]", "lstrip": true}, "additional_special_tokens": ["<y>"]})"},
      {"special_tokens_map.json",
       R"({"unk_token": "[UNK]", "cls_token": {"content": "[CLS]", "normalized": false}, "extra_token": "<z>",
           "extra_special_tokens": ["<y>", {"content": "<w>", "rstrip": true}]})"},
      {"added_tokens.json", R"({"<x>": 10, "new": 11})"}};
  static const Folder of_bpe{
      {"config.json", R"({"model_type": "roberta"})"},
      {"tokenizer_config.json",
       R"({"add_prefix_space": true, "trim_offsets": false, "model_input_names": ["input_ids"], "pad_token": "<pad>",
           "unk_token": "<pad>", "mask_token": {"content": "<mask>", "lstrip": true},
           "added_tokens_decoder": {"2": {"content": "<mask>", "special": true}, "9": {"content": "<x>", "special": false}}})"}};
  static const std::vector<Folder> folders = [] {
    std::vector<Folder> all(7, of_bert);
    all[0]["vocab.txt"] = kFuzzVocabulary;
    all[1]["tokenizer.json"] = kWordPieceJson;
    all[2] = {{"tokenizer.json", kWordPieceJson}, {"vocab.txt", kFuzzVocabulary}};
    all[3] = of_bpe;
    all[3]["vocab.json"] = parse_json(kBpeJson, "")["model"]["vocab"].dump();
    all[3]["merges.txt"] = "#version: 0.2\na b\n\u0120 ab\n";
    all[4] = all[3];
    all[4]["tokenizer_config.json"] =
        R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>"})";
    all[5] = {{"tokenizer.json", kBpeJson}};
    all[6] = of_bpe;
    all[6]["tokenizer.json"] = kBpeJson;
    return all;
  }();
  return folders;
}

// ---- damage

Json strange_token(std::mt19937_64& random) {
  static const std::vector<Json> values{
      "a",
      "##b",
      "[MASK]",
      "<x>",
      "<q>",
      "",
      " ",
      "\u0120",
      "[id 0 unused: ]",
      "[line 1 repeated: a]",
      "\u00C9",
      "\u0130",
      "a b",
      "\u0000",
      0,
      5,
      9,
      10,
      2147483646,
      2147483647,
      -2147483648,
      999999999,
      "WordPiece",
      "BPE",
      "RobertaProcessing",
      "BertProcessing",
      "ByteLevel",
      "none",
      "NFC",
      "GPT2Tokenizer",
      "RobertaTokenizerFast",
      "PreTrainedTokenizerFast",
      "gpt2",
      Json{{"content", "<q>"}, {"id", 2147483647}},
      Json{{"content", "[CLS]"}, {"id", 2147483647}},
      Json{{"content", "ab"}, {"special", true}, {"normalized", true}, {"single_word", true}},
      Json{{"content", "\u00C9"}, {"normalized", true}},
      Json::array({"<q>", "<y>"}),
      Json{{"999999999", {{"content", "<q>"}}}},
      Json{{"<q>", 2147483647}}};
  return random() % 3 == 0 ? strange_value(random) : values[random() % values.size()];
}

std::string damaged_json(const std::string& text, std::mt19937_64& random) {
  static const std::vector<std::string> keys{"bos_token",
                                             "eos_token",
                                             "unk_token",
                                             "sep_token",
                                             "pad_token",
                                             "cls_token",
                                             "mask_token",
                                             "new_token",
                                             "extra_special_tokens",
                                             "additional_special_tokens",
                                             "added_tokens_decoder",
                                             "tokenizer_class",
                                             "model_type",
                                             "do_lower_case",
                                             "split_special_tokens",
                                             "add_bos_token",
                                             "id",
                                             "content",
                                             "<q>",
                                             "2147483647",
                                             "[id 1 unused: ]"};
  Json json = Json::parse(text);
  for (uint64_t changes = 1 + random() % 4 / 3; changes > 0; --changes) {
    std::vector<Json::json_pointer> places;
    const Json flat = json.flatten();
    for (const auto& [place, value] : flat.items()) places.emplace_back(place);
    const Json::json_pointer place = places[random() % places.size()];
    Json& holder = place.empty() ? json : json.at(place.parent_pointer());
    if (random() % 4 == 0 && holder.is_object())
      holder[keys[random() % keys.size()]] = strange_token(random);
    else if (random() % 4 == 0 && holder.is_array())
      holder.push_back(strange_token(random));
    else if (random() % 4 == 0 && holder.is_object())
      holder.erase(place.back());
    else
      json[place] = strange_token(random);
    if (!json.is_structured() || json.empty()) break;
  }
  return json.dump();
}

std::string damaged_lines(std::string text, std::mt19937_64& random) {
  static const std::vector<std::string> lines{"a",
                                              "",
                                              " ",
                                              "[line 1 repeated: [PAD]]",
                                              "[line 6 repeated: a]",
                                              "[line 11 blank: ]",
                                              "a b",
                                              "[UNK]",
                                              "\u00A0",
                                              "ab \u00A0",
                                              "\xFF",
                                              "a\r",
                                              "\u0120 a",
                                              "b b"};
  for (uint64_t changes = 1 + random() % 4 / 3; changes > 0; --changes) {
    size_t at = random() % (text.size() + 1);
    at = text.find('\n', at) == text.npos ? text.size() : text.find('\n', at) + 1;
    text.insert(at, lines[random() % lines.size()] + (random() % 8 == 0 ? "" : "\n"));
  }
  return text;
}

void damage(Folder& folder, std::mt19937_64& random) {
  for (uint64_t changes = 1 + random() % 4 / 3; changes > 0 && !folder.empty(); --changes) {
    auto file = folder.begin();
    std::advance(file, random() % folder.size());
    const bool is_json = file->first.ends_with(".json") && Json::accept(file->second) &&
                         Json::parse(file->second).is_object() && !Json::parse(file->second).empty();
    if (random() % 16 == 0)
      folder.erase(file);
    else if (random() % 4 == 0)
      file->second = mutate(file->second, random);
    else
      file->second = is_json ? damaged_json(file->second, random) : damaged_lines(file->second, random);
  }
}

// ---- what comes of it

std::string trimmed(std::string line) {
  while (line.ends_with(' ') || line.ends_with('\r') || line.ends_with('\t')) line.pop_back();
  return line;
}

/// The tokens of a vocabulary of JSON that stand at their ids.
void expect_ids(const Json& vocabulary, const text::Tokenizer& tokenizer) {
  for (const auto& [token, id] : vocabulary.items()) {
    ASSERT_TRUE(json_holds<int32_t>(id)) << token;
    ASSERT_LT(id.get<int32_t>(), tokenizer.model_size());
    EXPECT_EQ(tokenizer.vocabulary()[id.get<size_t>()], token);
  }
}

/// Every token of the files is a token or told, and those of the vocabulary have their ids.
void expect_tokens_of_files(const Folder& folder, const text::Tokenizer& tokenizer, const std::string& said) {
  const std::set<std::string> all(tokenizer.vocabulary().begin(), tokenizer.vocabulary().end());
  const auto json = [&](const char* name) {
    return folder.contains(name) ? Json::parse(folder.at(name)) : Json::object();
  };
  if (folder.contains("tokenizer.json")) {
    expect_ids(json("tokenizer.json")["model"]["vocab"], tokenizer);
  } else if (folder.contains("vocab.txt")) {
    std::string text = folder.at("vocab.txt") + "\n", line;
    for (const char c : text) {
      if (c != '\n') {
        line += c;
      } else if (line = trimmed(line); line.find("\u00A0") == line.npos && line.find("\v") == line.npos &&
                                       line.find("\f") == line.npos) {
        EXPECT_TRUE(line.empty() || all.contains(line)) << line;
        line.clear();
      } else {
        line.clear();
      }
    }
  } else {
    expect_ids(json("vocab.json"), tokenizer);
  }
  if (json("tokenizer_config.json").contains("added_tokens_decoder")) return;  // it alone holds
  const Json added = json("added_tokens.json");
  for (const auto& [token, id] : added.items())
    EXPECT_TRUE(token.empty() || all.contains(token) || said.find("\"" + visible(token) + "\"") != said.npos)
        << token;
}

void expect_ids_in_range(const text::Tokenizer& tokenizer) {
  const int32_t size = tokenizer.size();
  const text::SpecialTokens& special = tokenizer.special();
  for (const int32_t id : {special.pad, special.unknown, special.cls, special.sep, special.mask}) {
    EXPECT_GE(id, -1);
    EXPECT_LT(id, size);
  }
  for (const int columns : {1, 2})
    for (const auto& step : tokenizer.sequence().steps(columns)) EXPECT_LT(step.token, size);
  const std::set<std::string> all(tokenizer.vocabulary().begin(), tokenizer.vocabulary().end());
  EXPECT_EQ(all.size(), static_cast<size_t>(size)) << "a token has two ids";
  for (int32_t id = 0; id < size; ++id)
    EXPECT_EQ(tokenizer.id_of(tokenizer.vocabulary()[static_cast<size_t>(id)]), id);
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    ASSERT_TRUE(token.id >= 0 && token.id < size) << token.content;
    EXPECT_EQ(tokenizer.vocabulary()[static_cast<size_t>(token.id)], token.content);
  }
}

constexpr const char* kTexts[] = {"a ab <x> [MASK]<mask> <y>new \u00C9zz <q>", "", " \xFF a\u0000b",
                                  "aab[UNK]  <x> \u0130\u4E00"};

Ids ids_of(const text::Tokenizer& tokenizer) {
  Ids all;
  for (const char* text : kTexts) {
    const text::TokenizedText found = tokenizer.tokenize(text);
    EXPECT_EQ(found.ids.size(), found.word_starts.size());
    all.insert(all.end(), found.ids.begin(), found.ids.end());
    if (const auto* bpe = dynamic_cast<const text::ByteBpe*>(&tokenizer)) {
      text::TokenizedText with_places;
      std::vector<text::CharacterRange> places;
      bpe->tokenize(text, with_places, places);
      EXPECT_EQ(with_places.ids, found.ids);
      EXPECT_EQ(places.size(), found.ids.size());
    }
  }
  for (const int32_t id : all) {
    EXPECT_TRUE(id >= 0 && id < tokenizer.size()) << id;
    if (id >= 0 && id < tokenizer.size()) tokenizer.token_text(id);
  }
  return all;
}

std::string shown(const Folder& folder) {
  std::string text;
  for (const auto& [name, contents] : folder) text += "\n--- " + name + "\n" + contents;
  return text;
}

TEST(TokenizerFuzz, DamagedFoldersAreReadInRangeOrRefused) {
  const Scratch scratch;
  std::mt19937_64 random(1907);
  std::map<size_t, size_t> taken, refused;
  for (int round = 0, rounds = fuzz_rounds(120); round < rounds; ++round) {
    const size_t kind = random() % whole_folders().size();
    Folder folder = whole_folders()[kind];
    damage(folder, random);
    const fs::path path = scratch / "folder";
    fs::remove_all(path);
    fs::create_directories(path);
    for (const auto& [name, contents] : folder) scratch.put("folder/" + name, contents);
    SCOPED_TRACE("round " + std::to_string(round) + shown(folder));
    testing::internal::CaptureStderr();
    std::unique_ptr<text::Tokenizer> tokenizer;
    const std::string error = error_of([&] { tokenizer = load_tokenizer(path); });
    const std::string said = testing::internal::GetCapturedStderr();
    if (!tokenizer) {
      EXPECT_NE(error, "");
      EXPECT_TRUE(error.find("has the id -2147483648") == error.npos ||
                  shown(folder).find("-2147483648") != std::string::npos)
          << error;
      ++refused[kind];
      if (testing::Test::HasFailure()) break;
      continue;
    }
    ++taken[kind];
    expect_ids_in_range(*tokenizer);
    expect_tokens_of_files(folder, *tokenizer, said);
    const Ids ids = ids_of(*tokenizer);
    if (testing::Test::HasFailure()) break;
    if (round % 8 != 0) continue;
    const fs::path copy = scratch / "copy";
    save_tokenizer(copy, *tokenizer);
    const auto again = load_tokenizer(copy);
    ASSERT_EQ(again->vocabulary(), tokenizer->vocabulary());
    ASSERT_EQ(ids_of(*again), ids);
    const bool lacks = !tokenizer->sequence().missing().empty();  // nothing can be put together with it
    ASSERT_TRUE(lacks || again->sequence() == tokenizer->sequence());
    fs::remove_all(copy);
  }
  for (size_t kind = 0; kind < whole_folders().size(); ++kind) {
    EXPECT_GT(taken[kind], 0u) << kind;
    EXPECT_GT(refused[kind], 0u) << kind;
  }
}

}  // namespace
}  // namespace funicular::format
