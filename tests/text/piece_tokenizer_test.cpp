#include "funicular/text/piece_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>

#include "funicular/base/error.h"
#include "funicular/text/character_bpe.h"
#include "funicular/text/clusters.h"
#include "funicular/text/unigram.h"
#include "funicular/text/utf8.h"
#include "tests/fuzz_rounds.h"

namespace funicular::text::piece_tests {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;
using Ranges = std::vector<CharacterRange>;
using Scored = std::vector<std::pair<std::string, double>>;

constexpr const char* kMark = kBlankMark;

std::unique_ptr<Unigram> unigram(const Scored& pieces, int32_t unknown = 0, bool bytes = false) {
  std::vector<std::string> texts;
  std::vector<double> scores;
  for (const auto& [text, score] : pieces) texts.push_back(text), scores.push_back(score);
  return std::make_unique<Unigram>(std::move(texts), std::move(scores), unknown, bytes);
}

Texts pieces_of(const PieceModel& model, std::string_view word) {
  std::vector<WordPart> parts;
  model.encode(word, parts);
  Texts result;
  for (const WordPart& part : parts) result.push_back(model.vocabulary()[static_cast<size_t>(part.id)]);
  return result;
}

/// The rules of XLM-R without its table of characters.
PieceRules xlm_r_rules() {
  PieceRules rules;
  rules.splitter = {{.kind = SplitterStep::white_space}, {.kind = SplitterStep::metaspace}};
  return rules;
}

PieceTokenizer tokenizer_of(std::unique_ptr<const PieceModel> model, PieceRules rules,
                            std::vector<AddedToken> added = {}) {
  return {std::move(model), std::move(rules), std::move(added), {}};
}

Texts tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  Texts result;
  for (const int32_t id : tokenizer.tokenize(text).ids)
    result.push_back(tokenizer.vocabulary()[static_cast<size_t>(id)]);
  return result;
}

/// A table of texts of one byte each, all with a node of their own: base 256.
std::string table_of(const std::map<char, std::string>& replacements, const std::string& of_acute = "") {
  std::vector<uint32_t> units(1024);
  units[0] = 256u << 10;
  std::string strings;
  uint32_t leaf = 512;
  for (const auto& [byte, text] : replacements) {
    const uint32_t place = 256u ^ static_cast<uint8_t>(byte);
    units[place] = (place ^ leaf) << 10 | 1u << 8 | static_cast<uint8_t>(byte);
    units[leaf] = 1u << 31 | static_cast<uint32_t>(strings.size());
    strings += text + '\0';
    ++leaf;
  }
  if (!of_acute.empty()) {
    const uint32_t first = 256u ^ 0xCC, second = 768u ^ 0x81;  // U+0301
    units[first] = (first ^ 768u) << 10 | 0xCC;
    units[second] = (second ^ leaf) << 10 | 1u << 8 | 0x81;
    units[leaf] = 1u << 31 | static_cast<uint32_t>(strings.size());
    strings += of_acute + '\0';
  }
  const auto size = static_cast<uint32_t>(4 * units.size());
  std::string bytes(4 + size, '\0');
  std::memcpy(bytes.data(), &size, 4);
  std::memcpy(bytes.data() + 4, units.data(), size);
  return bytes + strings;
}

TEST(UnigramModel, TheLargestSumOfScoresWinsAndOfEqualSumsTheEarlierEnd) {
  const auto model = unigram({{"<unk>", 0}, {"a", -1}, {"b", -1}, {"ab", -1.5}, {"abc", -9}, {"c", -1}});
  EXPECT_EQ(pieces_of(*model, "abc"), (Texts{"ab", "c"}));
  // aa + aaa, aaa + aa and others have one sum: a path gives way only to a greater one.
  const auto ties = unigram({{"<unk>", 0}, {"a", -2}, {"aa", -2}, {"aaa", -2}});
  EXPECT_EQ(pieces_of(*ties, "aaaaa"), (Texts{"aa", "aaa"}));
}

TEST(UnigramModel, UnknownCharactersInARowAreOneTokenOrTheirBytes) {
  const auto model = unigram({{"<unk>", 0}, {"a", -1}, {"<0xC3>", 0}, {"<0xA9>", 0}});
  EXPECT_EQ(pieces_of(*model, "a\u00E9\u00E9a"), (Texts{"a", "<unk>", "a"}));
  const auto bytes = unigram({{"<unk>", 0}, {"a", -1}, {"<0xC3>", 0}, {"<0xA9>", 0}}, 0, true);
  EXPECT_EQ(pieces_of(*bytes, "\u00E9\u00E9a"), (Texts{"<0xC3>", "<0xA9>", "<0xC3>", "<0xA9>", "a"}));
  EXPECT_EQ(pieces_of(*bytes, "\u00E9\u00E8a"), (Texts{"<unk>", "a"})) << "a byte is missing: none is used";
  EXPECT_EQ(pieces_of(*model, "<unk>a"), (Texts{"<unk>", "a"})) << "the text of a token is that token";
}

TEST(UnigramModel, TheUnknownScoreIsTenBelowTheLowest) {
  // xa, b, c cost -19, and an unknown x with abc -20.
  const auto model = unigram({{"<unk>", 0}, {"xa", -1}, {"abc", -1}, {"b", -9}, {"c", -9}});
  EXPECT_EQ(pieces_of(*model, "xabc"), (Texts{"xa", "b", "c"}));
  const auto other = unigram({{"<unk>", 0}, {"xa", -1}, {"abc", -1}, {"b", -9}, {"c", -11}});
  EXPECT_EQ(pieces_of(*other, "xabc"), (Texts{"xa", "b", "c"})) << "-21 against -22";
  const auto least = unigram({{"<unk>", 0}, {"xa", -1}, {"abc", -1}, {"b", -9.75}, {"c", -9.75}});
  EXPECT_EQ(pieces_of(*least, "xabc"), (Texts{"xa", "b", "c"})) << "-20.5 against -20.75";
  const auto cheap = unigram({{"<unk>", 0}, {"xa", -1}, {"abc", -1}, {"b", -10.5}, {"c", -10.5}});
  EXPECT_EQ(pieces_of(*cheap, "xabc"), (Texts{"<unk>", "abc"})) << "-22 against -21.5";
}

TEST(UnigramModel, OfRepeatedPiecesTheLastCounts) {
  const auto model = unigram({{"<unk>", 0}, {"a", -1}, {"b", -1}, {"ab", -9}, {"ab", -1}});
  EXPECT_EQ(pieces_of(*model, "ab"), (Texts{"ab"}));
  EXPECT_EQ(model->id_of("ab"), 4);
}

TEST(UnigramModel, DamagedVocabulariesAreRefused) {
  EXPECT_THROW(Unigram({"a"}, {}, 0, false), InputError);
  EXPECT_THROW(Unigram({"a"}, {0.0}, 1, false), InputError);
  EXPECT_THROW(Unigram({"a"}, {0.0}, -1, false), InputError);
  EXPECT_THROW(Unigram({""}, {0.0}, 0, false), InputError);
  EXPECT_THROW(Unigram({"\xFF"}, {0.0}, 0, false), InputError);
  EXPECT_THROW(Unigram({"a"}, {std::numeric_limits<double>::infinity()}, 0, false), InputError);
}

/// Characters, bytes and what the merges make.
std::unique_ptr<CharacterBpe> bpe(const std::vector<std::pair<std::string, std::string>>& pairs,
                                  CharacterBpeOptions options, bool bytes = true) {
  std::vector<std::string> vocabulary{"<unk>", "a", "b", "c", kMark};
  for (int byte = 0; bytes && byte < 256; ++byte)
    vocabulary.push_back(byte_token(static_cast<uint8_t>(byte)));
  std::vector<Merge> merges;
  const auto id = [&](const std::string& token) {
    const auto found = std::find(vocabulary.begin(), vocabulary.end(), token);
    if (found == vocabulary.end()) vocabulary.push_back(token);
    return static_cast<int32_t>(std::find(vocabulary.begin(), vocabulary.end(), token) - vocabulary.begin());
  };
  for (const auto& [left, right] : pairs) {
    const int32_t first = id(left), second = id(right), both = id(left + right);
    merges.push_back({first, second, both});
  }
  return std::make_unique<CharacterBpe>(std::move(vocabulary), std::move(merges), std::move(options));
}

TEST(CharacterBpeModel, CharactersThatNoTokenHasBecomeBytes) {
  const auto model =
      bpe({{"a", "b"}}, {.unknown_token = "<unk>", .fuse_unknown = true, .byte_fallback = true});
  EXPECT_EQ(pieces_of(*model, "ab\u00E9c"), (Texts{"ab", "<0xC3>", "<0xA9>", "c"}));
}

TEST(CharacterBpeModel, UnknownCharactersWaitForTheNextToken) {
  const auto fused = bpe({}, {.unknown_token = "<unk>", .fuse_unknown = true}, false);
  EXPECT_EQ(pieces_of(*fused, "axyb"), (Texts{"a", "<unk>", "b"}));
  const auto apart = bpe({}, {.unknown_token = "<unk>"}, false);
  EXPECT_EQ(pieces_of(*apart, "axyb"), (Texts{"a", "<unk>", "<unk>", "b"}));
  const auto dropped = bpe({}, {}, false);
  EXPECT_EQ(pieces_of(*dropped, "axyb"), (Texts{"a", "b"}));
  // Bytes go before an unknown character that stands before them, as in `tokenizers`.
  CharacterBpeOptions options{.unknown_token = "<unk>", .fuse_unknown = true, .byte_fallback = true};
  const CharacterBpe few({"<unk>", "a", "<0x78>"}, {}, options);
  EXPECT_EQ(pieces_of(few, "yxa"), (Texts{"<0x78>", "<unk>", "a"}));
}

TEST(CharacterBpeModel, PartsThatNeverJoinAreMergedAlike) {
  const auto model =
      bpe({{"a", "b"}, {kMark, "ab"}, {kMark, "a"}, {kMark, kMark}}, {.unknown_token = "<unk>"}, false);
  EXPECT_TRUE(model->splits_between('b', kMark));
  EXPECT_FALSE(model->splits_between(0x2581, kMark)) << "marks join marks";
  EXPECT_FALSE(model->splits_between('x', kMark)) << "an unknown character waits";
  EXPECT_EQ(pieces_of(*model, std::string(kMark) + "ab" + kMark + "ab"),
            (Texts{std::string(kMark) + "ab", std::string(kMark) + "ab"}));
}

TEST(Clusters, MarksJoinersAndConjunctsJoinWhatIsBeforeThem) {
  const auto first = [](std::string_view text) {
    return std::string(text.substr(
        0, static_cast<size_t>(end_of_cluster(text.data(), text.data() + text.size()) - text.data())));
  };
  EXPECT_EQ(first("ab"), "a");
  EXPECT_EQ(first("a\u0301\u0302b"), "a\u0301\u0302");
  EXPECT_EQ(first("\r\nx"), "\r\n");
  EXPECT_EQ(first("\n\u0301"), "\n");
  EXPECT_EQ(first("\u1100\u1161\u11A8\u1100"), "\u1100\u1161\u11A8");
  EXPECT_EQ(first("\u00A9\u200D\u2764x"), "\u00A9\u200D\u2764");
  EXPECT_EQ(first("\u0915\u094D\u0915x"), "\u0915\u094D\u0915");
  EXPECT_EQ(first("\u0600a"), "\u0600a");
}

TEST(CharacterMaps, ShortClustersAreReplacedWholeAndLongOnesByCharacter) {
  const CharacterMap map(table_of({{'1', "one"}, {'x', ""}}));
  const auto after = [&](std::string_view text) {
    std::string result;
    map.append(text, result);
    return result;
  };
  EXPECT_EQ(after("a1b"), "aoneb");
  EXPECT_EQ(after("1\u0301"), "one") << "the mark goes with the cluster";
  EXPECT_EQ(after("1\u0301\u0302\u0303"), "one\u0301\u0302\u0303") << "7 bytes";
  EXPECT_EQ(after("axb"), "ab");
  std::string marked;
  CharacterMap(table_of({}, "!")).append("ba\u0301\u0302", marked);
  EXPECT_EQ(marked, "ba!\u0302") << "the marks and the letter are one cluster, which has no key";
  std::vector<NormalizedCharacter> characters;
  EXPECT_FALSE(map.apply("abc", characters));
  EXPECT_TRUE(map.apply("x1", characters));
  ASSERT_EQ(characters.size(), 3u);
  EXPECT_EQ(characters[2].change, 1) << "what is longer is inserted";
  EXPECT_THROW(CharacterMap(""), InputError);
  EXPECT_THROW(CharacterMap(std::string("\x05\0\0\0abcde", 9)), InputError);
  EXPECT_THROW(CharacterMap(std::string("\x04\0\0\0abcd\xFF", 9)), InputError);
}

TEST(CharacterMaps, DamagedOnesAreReadWithinTheirBounds) {
  std::mt19937 random(3);
  const std::string whole = table_of({{'1', "one"}, {'x', ""}, {'a', "\u00E9"}});
  for (int round = 0; round < fuzz_rounds(300); ++round) {
    std::string bytes = whole;
    for (int i = 0; i < 8; ++i) bytes[4 + random() % (bytes.size() - 4)] = static_cast<char>(random());
    try {
      const CharacterMap map(bytes);
      std::string result;
      map.append("a1x\u0301 b\u4E2D", result);
      EXPECT_TRUE(is_valid_utf8(result));
      map.for_each([](const std::string&, std::string_view) {});
    } catch (const InputError&) {
    }
  }
}

// Each node leads to the next one by the same byte, and ends a key.
TEST(CharacterMaps, LongChainsOfDamagedOnesAreReadUpToTheirLongestKey) {
  constexpr uint32_t kUnits = 1u << 18;
  std::vector<uint32_t> units(kUnits);
  const auto offset = [](uint32_t value) { return value << 10; };
  units[0] = offset(256);
  for (uint32_t place = 256 ^ 'a'; place + 256 < kUnits; place += 256)
    units[place] = offset(place ^ ((place + 256) ^ 'a')) | 1u << 8 | 'a';
  const uint32_t size = 4 * kUnits;
  std::string bytes(4 + size, '\0');
  std::memcpy(bytes.data(), &size, 4);
  std::memcpy(bytes.data() + 4, units.data(), size);
  size_t longest = 0, count = 0;
  CharacterMap(bytes + std::string("b\0", 2)).for_each([&](const std::string& key, std::string_view) {
    longest = std::max(longest, key.size());
    ++count;
  });
  EXPECT_LE(longest, 64u);
  EXPECT_LE(count, 64u);
}

TEST(Splitting, TheBehavioursAreThoseOfTokenizers) {
  const auto words = [](SplitterStep::Behavior behavior) {
    Texts result;
    for (const AlignedText& word :
         split_words({{.kind = SplitterStep::literal, .pattern = "-", .behavior = behavior}},
                     {"the-final--countdown", {}}))
      result.push_back(word.text);
    return result;
  };
  using enum SplitterStep::Behavior;
  EXPECT_EQ(words(removed), (Texts{"the", "final", "countdown"}));
  EXPECT_EQ(words(isolated), (Texts{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(words(merged_with_previous), (Texts{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(words(merged_with_next), (Texts{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(words(contiguous), (Texts{"the", "-", "final", "--", "countdown"}));
}

TEST(PieceTokenizers, MarksStandBeforeWordsAndTakeTheirPlaces) {
  const auto tokenizer = tokenizer_of(
      unigram({{"<unk>", 0}, {std::string(kMark) + "ab", -1}, {kMark, -3}, {"c", -1}, {"ab", -2}}),
      xlm_r_rules());
  EXPECT_EQ(tokens_of(tokenizer, "ab  abc"),
            (Texts{std::string(kMark) + "ab", std::string(kMark) + "ab", "c"}));
  TokenizedText tokens;
  Ranges ranges;
  tokenizer.tokenize("ab  abc", tokens, ranges);
  EXPECT_EQ(ranges, (Ranges{{0, 2}, {4, 6}, {6, 7}}));
  EXPECT_EQ(tokens.word_starts, (std::vector<uint8_t>{1, 1, 0}));
  EXPECT_EQ(tokenizer.token_text(1), " ab");
}

TEST(PieceTokenizers, TheFirstMarkStandsAtTheBeginningOnly) {
  PieceRules rules;
  rules.splitter = {{.kind = SplitterStep::metaspace, .prepend = SplitterStep::Prepend::first}};
  const auto tokenizer = tokenizer_of(unigram({{"<unk>", 0}, {kMark, -1}, {"a", -1}, {"<x>", 0}}), rules,
                                      {{.id = 3, .content = "<x>"}});
  EXPECT_EQ(tokens_of(tokenizer, "a<x>a a"), (Texts{kMark, "a", "<x>", "a", kMark, "a"}));
}

// The quick way cuts texts at blanks and remembers; the way with offsets takes each step for itself.
TEST(PieceTokenizers, BothWaysGiveTheSameTokens) {
  PieceRules albert = xlm_r_rules(), bge, gemma, llama;
  albert.normalizer = {{.kind = NormalizerStep::nfkd},
                       {.kind = NormalizerStep::strip_accents},
                       {.kind = NormalizerStep::lowercase}};
  bge.normalizer = {{.kind = NormalizerStep::precompiled,
                     .map = std::make_shared<CharacterMap>(table_of({{'1', "one"}, {'x', ""}, {'y', " "}}))},
                    {.kind = NormalizerStep::strip, .left = false},
                    {.kind = NormalizerStep::replace_blanks, .content = " "}};
  bge.splitter = {{.kind = SplitterStep::metaspace}};
  gemma.normalizer = {{.kind = NormalizerStep::replace_text, .pattern = " ", .content = kMark}};
  llama.normalizer = gemma.normalizer;
  llama.normalizer.insert(llama.normalizer.begin(), {.kind = NormalizerStep::prepend, .content = kMark});
  const Scored pieces{
      {"<unk>", 0},   {kMark, -2}, {"a", -2}, {"b", -2}, {"ab", -3},     {std::string(kMark) + "a", -2},
      {"\u00E9", -4}, {"e", -2},   {"o", -1}, {"n", -1}, {"\u4E2D", -3}, {"one", -1}};
  const std::vector<std::pair<std::string, std::string>> merges{
      {"a", "b"}, {kMark, "ab"}, {kMark, kMark}, {kMark, "a"}};
  std::vector<PieceTokenizer> all;
  for (const PieceRules& rules : {albert, bge}) all.push_back(tokenizer_of(unigram(pieces), rules));
  for (const PieceRules& rules : {gemma, llama})
    all.push_back(tokenizer_of(
        bpe(merges, {.unknown_token = "<unk>", .fuse_unknown = true, .byte_fallback = true}), rules));
  std::mt19937 random(7);
  const Texts parts{"a",       "b",      " ",      "  ",     "ab",     "1",      "x",   "y",  "\u00E9",
                    "e\u0301", "\u0301", "\u3000", "\u4E2D", "\u0600", "\u00A8", kMark, "\n", "one two"};
  for (int round = 0; round < fuzz_rounds(3000); ++round) {
    std::string text;
    for (size_t i = random() % 12; i > 0; --i) text += parts[random() % parts.size()];
    for (const PieceTokenizer& tokenizer : all) {
      const TokenizedText quick = tokenizer.tokenize(text);
      TokenizedText slow;
      Ranges ranges;
      tokenizer.tokenize(text, slow, ranges);
      ASSERT_EQ(quick.ids, slow.ids) << tokenizer.description() << ": \"" << text << '"';
      ASSERT_EQ(quick.word_starts, slow.word_starts) << tokenizer.description() << ": \"" << text << '"';
    }
  }
}

NormalizerStep replacing(std::string pattern, std::string content) {
  return {.kind = NormalizerStep::replace_text, .pattern = std::move(pattern), .content = std::move(content)};
}

NormalizerStep mapping(const std::map<char, std::string>& replacements) {
  return {.kind = NormalizerStep::precompiled, .map = std::make_shared<CharacterMap>(table_of(replacements))};
}

/// Expects the same tokens from both ways of reading random texts.
void expect_both_ways(const PieceTokenizer& tokenizer, const std::string& name) {
  std::mt19937 random(11);
  const Texts parts{"a", "b", " ", " ", "A", "!", "_", "x", "\u00E9", "\u3000", kMark, "  "};
  for (int round = 0; round < fuzz_rounds(300); ++round) {
    std::string text;
    for (size_t i = random() % 9; i > 0; --i) text += parts[random() % parts.size()];
    TokenizedText slow;
    Ranges ranges;
    tokenizer.tokenize(text, slow, ranges);
    const TokenizedText quick = tokenizer.tokenize(text);
    ASSERT_EQ(quick.ids, slow.ids) << name << ": \"" << text << '"';
    ASSERT_EQ(quick.word_starts, slow.word_starts) << name << ": \"" << text << '"';
  }
}

TEST(PieceTokenizers, OrdersOfStepsThatNoModelHasAreReadAlikeInBothWays) {
  using Steps = std::vector<NormalizerStep>;
  const SplitterStep white{.kind = SplitterStep::white_space}, marks{.kind = SplitterStep::metaspace};
  const SplitterStep signs{.kind = SplitterStep::punctuation, .behavior = SplitterStep::Behavior::isolated};
  SplitterStep other = marks, first = marks;
  other.mark = "_";
  first.prepend = SplitterStep::Prepend::first;
  const NormalizerStep lower{.kind = NormalizerStep::lowercase}, strip{.kind = NormalizerStep::strip};
  const NormalizerStep blanks{.kind = NormalizerStep::replace_blanks, .content = " "};
  const std::vector<std::tuple<const char*, Steps, std::vector<SplitterStep>>> all{
      {"no marks", {}, {white}},
      {"blanks become another character", {replacing(" ", "_")}, {marks}},
      {"blanks become marks before they split", {replacing(" ", kMark)}, {white}},
      {"the map has blanks", {mapping({{' ', "x"}})}, {marks}},
      {"punctuation before marks", {}, {signs, marks}},
      {"strip and punctuation", {strip}, {signs, marks}},
      {"another mark", {}, {other}},
      {"another mark and white space", {}, {white, other}},
      {"lower case, then nothing", {lower, mapping({{'a', ""}}), blanks}, {marks}},
      {"a letter becomes a blank, then strip", {replacing("A", "\u3000"), strip}, {marks}},
      {"ALBERT", {replacing("``", "\""), lower, mapping({{'x', " "}}), blanks}, {white, marks}},
      {"DeBERTa", {strip, mapping({{'x', " "}}), blanks}, {marks}},
      {"first", {{.kind = NormalizerStep::nfkd}}, {white, first}}};
  const std::string mark = kMark;
  const Scored pieces{{"<unk>", 0},  {mark, -2},   {"a", -2},           {"b", -2.1},
                      {"_", -2.2},   {"!", -2.3},  {mark + "a", -2.4},  {"_a", -2.5},
                      {"a_b", -2.6}, {"ab", -2.7}, {mark + mark, -3.1}, {"A", -3.2}};
  for (const auto& [name, steps, splitter] : all) {
    PieceRules rules;
    rules.normalizer = steps;
    rules.splitter = splitter;
    expect_both_ways(tokenizer_of(unigram(pieces), rules), name);
  }
}

TEST(PieceTokenizers, WithoutSplittingAMarkBeginsAWord) {
  PieceRules gemma;
  gemma.normalizer = {{.kind = NormalizerStep::replace_text, .pattern = " ", .content = kMark}};
  const auto tokenizer = tokenizer_of(bpe({{"a", "b"}, {kMark, "ab"}}, {.unknown_token = "<unk>"}), gemma);
  const TokenizedText tokens = tokenizer.tokenize("abc ab c");
  EXPECT_EQ(tokens.word_starts, (std::vector<uint8_t>{1, 0, 1, 1, 0}));
}

TEST(PieceTokenizers, TheFingerprintFollowsEveryRule) {
  const Scored pieces{{"<unk>", 0}, {"a", -1}};
  const uint64_t before = tokenizer_of(unigram(pieces), xlm_r_rules()).fingerprint();
  EXPECT_EQ(tokenizer_of(unigram(pieces), xlm_r_rules()).fingerprint(), before);
  EXPECT_NE(tokenizer_of(unigram({{"<unk>", 0}, {"a", -2}}), xlm_r_rules()).fingerprint(), before);
  EXPECT_NE(tokenizer_of(unigram(pieces, 0, true), xlm_r_rules()).fingerprint(), before);
  PieceRules rules = xlm_r_rules();
  rules.splitter[1].prepend = SplitterStep::Prepend::never;
  EXPECT_NE(tokenizer_of(unigram(pieces), rules).fingerprint(), before);
  rules = xlm_r_rules();
  rules.normalizer.push_back({.kind = NormalizerStep::nfkc});
  EXPECT_NE(tokenizer_of(unigram(pieces), rules).fingerprint(), before);
}

TEST(PieceTokenizers, TheFingerprintFollowsEveryField) {
  PieceRules full = xlm_r_rules();
  full.normalizer = {replacing("x", "y")};
  const std::vector<AddedToken> tokens{{.id = 2, .content = "<m>"}};
  const Scored pieces{{"<unk>", 0}, {"a", -1}};
  const auto hash = [&](auto change) {
    PieceRules rules = full;
    std::vector<AddedToken> added = tokens;
    std::vector<SequenceTemplate::Step> single{SequenceTemplate::Step::special(1, 0),
                                               SequenceTemplate::Step::text(0, 0)};
    change(rules, added.front(), single);
    const std::vector<SequenceTemplate::Step> pair{SequenceTemplate::Step::text(0, 0),
                                                   SequenceTemplate::Step::text(1, 0)};
    return PieceTokenizer(unigram(pieces), rules, added, SequenceTemplate(single, pair)).fingerprint();
  };
  std::set<uint64_t> seen{hash([](auto&, auto&, auto&) {})};
  size_t count = 1;
  const auto add = [&](const char* field, auto change) {
    seen.insert(hash(change));
    EXPECT_EQ(seen.size(), ++count) << field;
    count = seen.size();
  };
  add("pattern", [](auto& rules, auto&, auto&) { rules.normalizer[0].pattern = "z"; });
  add("content", [](auto& rules, auto&, auto&) { rules.normalizer[0].content = "z"; });
  add("left", [](auto& rules, auto&, auto&) { rules.normalizer[0].left = false; });
  add("right", [](auto& rules, auto&, auto&) { rules.normalizer[0].right = false; });
  add("map", [](auto& rules, auto&, auto&) { rules.normalizer.push_back(mapping({{'1', "one"}})); });
  add("mark", [](auto& rules, auto&, auto&) { rules.splitter[1].mark = "_"; });
  add("split", [](auto& rules, auto&, auto&) { rules.splitter[1].split = false; });
  add("kind", [](auto& rules, auto&, auto&) { rules.splitter[0].kind = SplitterStep::punctuation; });
  add("behavior",
      [](auto& rules, auto&, auto&) { rules.splitter[0].behavior = SplitterStep::Behavior::contiguous; });
  add("invert", [](auto& rules, auto&, auto&) { rules.splitter[0].invert = true; });
  add("trim_offsets", [](auto& rules, auto&, auto&) { rules.trim_offsets = true; });
  add("trim_keeps_prefix", [](auto& rules, auto&, auto&) { rules.trim_keeps_prefix = false; });
  add("reads_types", [](auto& rules, auto&, auto&) { rules.reads_types = true; });
  add("mask", [](auto& rules, auto&, auto&) { rules.mask_token = "<m>"; });
  add("added text", [](auto&, auto& token, auto&) { token.content = "<n>"; });
  add("special", [](auto&, auto& token, auto&) { token.special = !token.special; });
  add("normalized", [](auto&, auto& token, auto&) { token.normalized = true; });
  add("lstrip", [](auto&, auto& token, auto&) { token.lstrip = true; });
  add("rstrip", [](auto&, auto& token, auto&) { token.rstrip = true; });
  add("single_word", [](auto&, auto& token, auto&) { token.single_word = true; });
  add("template", [](auto&, auto&, auto& single) { single.front().token = 0; });
}

}  // namespace
}  // namespace funicular::text::piece_tests
