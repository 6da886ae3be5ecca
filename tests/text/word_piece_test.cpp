#include "funicular/text/word_piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/text/added_tokens.h"
#include "funicular/text/truncation.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

using Ids = std::vector<int32_t>;
using Ranges = std::vector<CharacterRange>;
using Strip = WordPieceOptions::StripAccents;

const std::vector<std::string> small = {"[UNK]", "[CLS]", "[SEP]", "want",  "##want", "##ed",
                                        "wa",    "un",    "runn",  "##ing", ",",      "[MASK]"};

std::vector<AddedToken> specials(std::initializer_list<int32_t> ids) {
  std::vector<AddedToken> result;
  for (const int32_t id : ids) result.push_back({.id = id, .content = small[id]});
  return result;
}

// The words that a tokeniser sees: each is one unknown token unless the vocabulary spells it.
std::vector<std::string> words(std::string_view text, std::vector<std::string> vocabulary,
                               WordPieceOptions options) {
  vocabulary.insert(vocabulary.begin(), "[UNK]");
  const WordPiece tokenizer(vocabulary, options, {});
  std::vector<std::string> result;
  for (const int32_t id : tokenizer.tokenize(text).ids) result.push_back(vocabulary[id]);
  return result;
}

TEST(WordPiece, SpellsTheExampleOfBert) {
  const WordPiece tokenizer(small, {}, {});
  const TokenizedText text = tokenizer.tokenize("UNwant\u00E9d,running");
  EXPECT_EQ(text.ids, (Ids{7, 4, 5, 10, 8, 9}));
  EXPECT_EQ(text.word_starts, (std::vector<uint8_t>{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(tokenizer.tokenize("wanting").ids, (Ids{3, 9})) << "the longest piece comes first";
}

TEST(WordPiece, AWordThatCannotBeSpelledToItsEndIsOneUnknownToken) {
  const WordPiece tokenizer(small, {.lowercase = false}, {});
  const TokenizedText text = tokenizer.tokenize("unwantedX running");
  EXPECT_EQ(text.ids, (Ids{0, 8, 9}));
  EXPECT_EQ(text.word_starts, (std::vector<uint8_t>{1, 1, 0}));
}

TEST(WordPiece, SignsBesideTheLettersAndDigitsAreWordsOfTheirOwn) {
  const std::vector<std::string> vocabulary = {"@", "`", "[", "{", "/", ":", "a", "z", "0", "9"};
  const std::vector<std::string> expected = {"@", "a", "`", "z", "[", "a", "{", "0", "/", "9", ":"};
  EXPECT_EQ(words("@a`z[a{0/9:", vocabulary, {}), expected);
  EXPECT_EQ(words("@ a ` z [ a { 0 / 9 :", vocabulary, {}), expected) << "alone they are sought as words";
}

TEST(WordPiece, LongAndShortWordsGiveTheSameAtEveryPlaceInTheText) {
  // The end of a text is read byte by byte, its middle in blocks of 16.
  const WordPiece tokenizer(small, {}, {});
  for (const std::string word :
       {"wanting", "running", "unwanteded", "wantwantwantwanted", "RUNNING", "unwant\u00E9d"}) {
    const Ids alone = tokenizer.tokenize(word).ids;
    for (int blanks = 0; blanks < 40; ++blanks)
      EXPECT_EQ(tokenizer.tokenize(word + std::string(blanks, ' ')).ids, alone) << word << " and " << blanks;
  }
}

TEST(WordPiece, IdeographsAreWordsOfTheirOwn) {
  EXPECT_EQ(words("ah\u535A\u63A8zz", {"ah", "\u535A", "\u63A8", "zz"}, {}),
            (std::vector<std::string>{"ah", "\u535A", "\u63A8", "zz"}));
  EXPECT_EQ(words("ah\u535A\u63A8zz", {"ah", "\u535A"}, {.handle_chinese_chars = false}),
            (std::vector<std::string>{"[UNK]"}));
}

TEST(WordPiece, LowerCasesAndStripsAccents) {
  const std::vector<std::string> greeting = {"hello", "!", "how", "are", "you", "?"};
  EXPECT_EQ(words(" \tHeLLo!how  \n Are yoU?  ", greeting, {}), greeting);
  const std::vector<std::string> accents = {"hello", "h\u00E9llo", "H\u00E9llo", "Hello"};
  EXPECT_EQ(words("H\u00E9llo", accents, {}).front(), "hello");
  EXPECT_EQ(words("H\u00E9llo", accents, {.strip_accents = Strip::no}).front(), "h\u00E9llo");
  EXPECT_EQ(words("H\u00E9llo", accents, {.lowercase = false}).front(), "H\u00E9llo");
  EXPECT_EQ(words("H\u00E9llo", accents, {.lowercase = false, .strip_accents = Strip::yes}).front(), "Hello");
}

TEST(WordPiece, LowerCaseKnowsNoContext) {
  EXPECT_EQ(words("\u039F\u03A3", {"\u03BF\u03C3"}, {}).front(), "\u03BF\u03C3");            // no final sigma
  EXPECT_EQ(words("\u0130", {"i\u0307"}, {.strip_accents = Strip::no}).front(), "i\u0307");  // I with dot
  EXPECT_EQ(words("\u0130", {"i"}, {}).front(), "i");
}

TEST(WordPiece, HangulIsDecomposedWhenAccentsAreStripped) {
  EXPECT_EQ(words("\uD55C", {"\u1112\u1161\u11AB"}, {}).front(), "\u1112\u1161\u11AB");
  EXPECT_EQ(words("\uD55C", {"\uD55C"}, {.strip_accents = Strip::no}).front(), "\uD55C");
  EXPECT_EQ(words("\uD558", {"\u1112\u1161"}, {}).front(), "\u1112\u1161") << "without a trailing consonant";
}

TEST(WordPiece, CombiningCharactersThatAreKeptComeInCanonicalOrder) {
  EXPECT_EQ(words("x a\u302E\U0001D165b", {"x", "a\U0001D165\u302Eb"}, {.clean_text = false}).back(),
            "a\U0001D165\u302Eb");
  EXPECT_EQ(words("a\u302E\u034F\U0001D165", {"a\u302E\U0001D165"}, {.clean_text = false}).back(),
            "a\u302E\U0001D165");
}

TEST(WordPiece, WordsOfTooManyCharactersAreUnknown) {
  const WordPieceOptions options{.max_characters_per_word = 3};
  EXPECT_EQ(words("\u00DF\u00DF\u00DF", {"\u00DF", "##\u00DF"}, options).size(), 3u);
  EXPECT_EQ(words("\u00DF\u00DF\u00DF\u00DF", {"\u00DF", "##\u00DF"}, options),
            (std::vector<std::string>{"[UNK]"}));
  EXPECT_EQ(words("aaaa", {"a", "##a"}, options), (std::vector<std::string>{"[UNK]"}));
  const std::string hundred(100, 'a');
  EXPECT_EQ(words(hundred, {"a", "##a"}, {}).size(), 100u);
  EXPECT_EQ(words(hundred + "a", {"a", "##a"}, {}).size(), 1u);
}

TEST(WordPiece, MalformedUtf8ReadsAsReplacementCharacters) {
  const WordPieceOptions raw{.clean_text = false, .strip_accents = Strip::no};
  const std::string r = "\uFFFD";
  // One for each maximal subpart; table 3-8 of Unicode 15: F0 90 | 80? the truncated E1 80, the lone
  // continuation, FF.
  EXPECT_EQ(words("a\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                  "b",
                  {"a" + r + r + r + r + "b"}, raw)
                .front(),
            "a" + r + r + r + r + "b");
  EXPECT_EQ(words("\xED\xA0\x80", {r + r + r}, raw).front(), r + r + r);  // a surrogate
  EXPECT_EQ(words("a\xFF"
                  "b",
                  {"ab"}, {})
                .front(),
            "ab");  // dropped when text is cleaned
}

TEST(WordPiece, SpecialTokensAreFoundInTheText) {
  const WordPiece tokenizer(small, {}, specials({0, 1, 2, 11}));
  EXPECT_EQ(tokenizer.tokenize("want[MASK]running [mask]").ids, (Ids{3, 11, 8, 9, 0, 0, 0}));
  EXPECT_EQ(tokenizer.special().mask, 11);
  EXPECT_EQ(tokenizer.special().pad, -1);
}

TEST(WordPiece, AddedTokensObeyTheirFlags) {
  std::vector<AddedToken> added = {{.id = 12, .content = "<l>", .lstrip = true},
                                   {.id = 13, .content = "solo", .single_word = true},
                                   {.id = 14, .content = "Caf\u00E9", .normalized = true},
                                   {.id = 15, .content = "solo want"}};
  const WordPiece tokenizer(small, {}, added);
  EXPECT_EQ(tokenizer.tokenize("solo").ids, (Ids{13}));
  EXPECT_EQ(tokenizer.tokenize("solox").ids, (Ids{0}));
  EXPECT_EQ(tokenizer.tokenize("solo want").ids, (Ids{15})) << "the longest wins";
  EXPECT_EQ(tokenizer.tokenize("CAFE\u0301want").ids, (Ids{14, 3}));
  EXPECT_EQ(tokenizer.tokenize("want  <l> want").ids, (Ids{3, 12, 3}));
  const std::vector<AddedToken> both = {{.id = 12, .content = "<r>", .rstrip = true},
                                        {.id = 13, .content = "<l>", .lstrip = true}};
  EXPECT_EQ(WordPiece(small, {}, both).tokenize("want <r>  <l> want").ids, (Ids{3, 12, 13, 3}))
      << "the blanks between two tokens belong to the first";
  std::vector<std::string> parts;
  AddedTokenMatcher::raw(both).split(
      "want <r>  <l> want", [&](std::string_view piece) { parts.emplace_back(piece); },
      [&](int32_t, std::string_view token) { parts.emplace_back(token); });
  EXPECT_EQ(parts, (std::vector<std::string>{"want ", "<r>  ", "<l>", " want"})) << "and to it alone";
  EXPECT_EQ(tokenizer.size(), 16);
  EXPECT_EQ(tokenizer.model_size(), 12);
  EXPECT_EQ(tokenizer.id_of("solo"), 13);
  EXPECT_EQ(tokenizer.id_of("nothing"), -1);
}

TEST(WordPiece, RefusesVocabulariesThatAreWrong) {
  EXPECT_THROW(WordPiece({"a", "b"}, {}, {}), InputError) << "no unknown token";
  EXPECT_THROW(WordPiece({"[UNK]", "a", "a"}, {}, {}), InputError) << "twice";
  EXPECT_THROW(WordPiece({"[UNK]", "a\xFF"}, {}, {}), InputError) << "not UTF-8";
  EXPECT_THROW(WordPiece({"[UNK]"}, {}, {{.id = 3, .content = "x"}}), InputError) << "a gap";
  EXPECT_THROW(WordPiece({"[UNK]"}, {}, {{.id = 0, .content = "x"}}), InputError) << "another token's id";
  EXPECT_THROW(WordPiece({"[UNK]"}, {}, {{.id = -1, .content = "x"}}), InputError) << "no id";
  EXPECT_THROW(WordPiece({"[UNK]"}, {.max_characters_per_word = 0}, {}), InputError);
}

TEST(WordPiece, TheFingerprintChangesWithWhateverDecidesIds) {
  const uint64_t one = WordPiece(small, {}, {}).fingerprint();
  EXPECT_EQ(one, WordPiece(small, {}, {}).fingerprint());
  EXPECT_EQ(one, WordPiece(small, {.strip_accents = Strip::yes}, {}).fingerprint())
      << "the same rule, said aloud";
  auto other = small;
  std::swap(other[3], other[6]);
  EXPECT_NE(one, WordPiece(other, {}, {}).fingerprint());
  EXPECT_NE(one, WordPiece(small, {.lowercase = false}, {}).fingerprint());
  EXPECT_NE(one, WordPiece(small, {.lowercase = false, .strip_accents = Strip::yes}, {}).fingerprint());
  EXPECT_NE(one, WordPiece(small, {.max_characters_per_word = 50}, {}).fingerprint());
  EXPECT_NE(one, WordPiece(small, {}, specials({2})).fingerprint());
}

TEST(WordPiece, ThreadsAndInstancesShareNothingThatChangesIds) {
  // Two vocabularies with the same words and other ids, used in turn by several threads: their caches must
  // not mix.
  std::vector<std::string> reversed(small.rbegin(), small.rend());
  const WordPiece a(small, {}, {}), b(reversed, {}, {});
  const auto last = static_cast<int32_t>(small.size()) - 1;
  const std::string text = "wanting unwanted running, wawant unwantedX want and some more to read";
  const Ids expected = a.tokenize(text).ids;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        Ids second = b.tokenize(text).ids;
        for (int32_t& id : second) id = last - id;
        ASSERT_EQ(a.tokenize(text).ids, expected);
        ASSERT_EQ(second, expected);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(WordPiece, RandomBytesNeverCrashAndSplitAtBlanks) {
  std::vector<AddedToken> added = specials({0, 1, 2, 11});
  added.push_back({.id = 12, .content = "e\u0301", .normalized = true, .lstrip = true, .rstrip = true});
  const WordPiece tokenizer(small, {}, added);
  std::mt19937 random(7);
  const std::string alphabet = "[]MASKwanted ,\xCC\x81\xE4\xB8\xAD\xF0\x9F\x98\x80\xC3\xA9";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = random() % 60; n > 0; --n)
      text.push_back(random() % 2 ? alphabet[random() % alphabet.size()] : static_cast<char>(random()));
    const std::string copy(
        text);  // exactly as long as it is, so that a sanitizer sees every byte read too many
    TokenizedText once = tokenizer.tokenize(copy);
    ASSERT_EQ(once.ids.size(), once.word_starts.size());
    const size_t before = once.ids.size();
    tokenizer.tokenize(copy, once);
    ASSERT_EQ(once.ids.size(), 2 * before) << "appends";
    TokenizedText again = tokenizer.tokenize(copy);
    Ranges offsets(before);
    tokenizer.tokenize(copy, again, offsets);  // by another scanner
    ASSERT_EQ(again.ids, once.ids);
    ASSERT_EQ(again.word_starts, once.word_starts);
    const std::string valid = to_valid_utf8(copy);
    const auto characters =
        std::count_if(valid.begin(), valid.end(), [](char c) { return !continues_character(c); });
    ASSERT_EQ(offsets.size(), 2 * before);
    for (const CharacterRange& range : offsets)
      ASSERT_TRUE(0 <= range.begin && range.begin <= range.end && range.end <= characters);
  }
}

TEST(WordPiece, OffsetsCountCharactersOfTheOriginal) {
  const auto ranges = [](std::string_view text, WordPieceOptions options = {},
                         const std::vector<AddedToken>& added = {}) {
    const WordPiece tokenizer(small, std::move(options), added);
    TokenizedText tokens;
    Ranges offsets;
    tokenizer.tokenize(text, tokens, offsets);
    EXPECT_EQ(tokens.ids, tokenizer.tokenize(text).ids) << text;
    EXPECT_EQ(tokens.word_starts, tokenizer.tokenize(text).word_starts) << text;
    return offsets;
  };
  EXPECT_EQ(ranges(" UNwant\u00E9d,running"), (Ranges{{1, 3}, {3, 7}, {7, 9}, {9, 10}, {10, 14}, {14, 17}}));
  EXPECT_EQ(ranges("wante\u0301d"), (Ranges{{0, 4}, {4, 7}})) << "the accent lies within \"##ed\"";
  EXPECT_EQ(ranges("want\u0001ed \u0001want"), (Ranges{{0, 4}, {5, 7}, {9, 13}})) << "controls are dropped";
  EXPECT_EQ(ranges("\u4E2D\u6587x"), (Ranges{{0, 1}, {1, 2}, {2, 3}})) << "a Chinese character is a word";
  EXPECT_EQ(ranges("\uAC00,"), (Ranges{{0, 1}, {1, 2}}))
      << "a syllable is decomposed into letters of its own range";
  EXPECT_EQ(ranges("wantX, un"), (Ranges{{0, 5}, {5, 6}, {7, 9}})) << "an unknown word is one token";
  EXPECT_EQ(ranges("wanted", {.max_characters_per_word = 5}), (Ranges{{0, 6}}));
  EXPECT_EQ(ranges("a [MASK]un", {}, specials({0, 11})), (Ranges{{0, 1}, {2, 8}, {8, 10}}));
  EXPECT_EQ(ranges("un E\u0301 ", {}, {{.id = 12, .content = "e", .normalized = true, .rstrip = true}}),
            (Ranges{{0, 2}, {3, 6}}))
      << "an added token with its blank";
  EXPECT_EQ(ranges("[MASK]  [MASK]", {.roberta_sequence = true, .cls_token = "[CLS]", .sep_token = "[SEP]"},
                   {{.id = 11, .content = "[MASK]", .lstrip = true}}),
            (Ranges{{0, 6}, {8, 14}}))
      << "MPNet's offsets leave out the blanks";
}

TEST(Truncation, TakesFromTheLongerColumnFirst) {
  const auto cut = [](int a, int b, int limit, Truncation how = Truncation::longest_first) {
    const PairLengths result = truncate_pair({a, b}, limit, how);
    return std::pair(result.first, result.second);
  };
  EXPECT_EQ(cut(3, 4, 7), std::pair(3, 4));
  EXPECT_EQ(cut(3, 10, 9), std::pair(3, 6));
  EXPECT_EQ(cut(10, 3, 9), std::pair(6, 3));
  EXPECT_EQ(cut(10, 10, 9), std::pair(4, 5));
  EXPECT_EQ(cut(11, 10, 9), std::pair(5, 4));
  EXPECT_EQ(cut(10, 0, 4), std::pair(4, 0));
  EXPECT_EQ(cut(10, 3, 9, Truncation::only_first), std::pair(6, 3));
  EXPECT_EQ(cut(3, 10, 9, Truncation::only_second), std::pair(3, 6));
  EXPECT_EQ(cut(5, 5, 0, Truncation::only_first), std::pair(0, 0));
  EXPECT_THROW(cut(3, 10, 9, Truncation::only_first), InputError);
  EXPECT_THROW(cut(10, 3, 9, Truncation::only_second), InputError);
  EXPECT_THROW(cut(4, 9, 9, Truncation::only_first), InputError) << "nothing would be left of the column";
}

}  // namespace
}  // namespace funicular::text
