#include "funicular/text/byte_bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/nfc.h"
#include "funicular/text/utf8.h"

namespace funicular::text::byte_bpe_tests {
namespace {

using Ids = std::vector<int32_t>;
using Starts = std::vector<uint8_t>;
using Ranges = std::vector<CharacterRange>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

// A tokenizer from the texts of its merges, "a b": the bytes first, then what the merges make.
struct Made {
  std::vector<std::string> vocabulary;
  std::vector<Merge> merges;

  explicit Made(const Pairs& pairs, std::string_view bytes = "") {
    for (int byte = 0; byte < 256; ++byte) {
      const char one = static_cast<char>(byte);
      if (bytes.empty() || bytes.find(one) != bytes.npos) vocabulary.push_back(to_byte_characters({&one, 1}));
    }
    for (const auto& [left, right] : pairs) {
      const int32_t first = id(left), second = id(right);
      if (id(left + right) < 0) vocabulary.push_back(to_byte_characters(left + right));
      merges.push_back({first, second, id(left + right)});
    }
  }
  int32_t id(std::string_view bytes) const {
    const auto found = std::find(vocabulary.begin(), vocabulary.end(), to_byte_characters(bytes));
    return found == vocabulary.end() ? -1 : static_cast<int32_t>(found - vocabulary.begin());
  }
  ByteBpe tokenizer(ByteBpeOptions options = {}, std::vector<AddedToken> added = {}) const {
    return {vocabulary, merges, options, std::move(added), {}};
  }
};

std::vector<std::string> texts_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> result;
  for (const int32_t id : tokenizer.tokenize(text).ids) result.push_back(tokenizer.token_text(id));
  return result;
}

std::vector<std::string> pieces_of(std::string text) {
  const size_t size = text.size();
  text.append(readable_behind, 'x');  // what stands behind the end is never read as text
  std::vector<std::string> result;
  for (const char *at = text.data(), *end = at + size; at < end;) {
    const char* behind = end_of_piece(at, end);
    result.emplace_back(at, behind);
    at = behind;
  }
  return result;
}

const Made small(Pairs{
    {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "w"}, {"o", "r"}, {" w", "or"}});

TEST(ByteLevel, TheAlphabetSpellsEveryByteAndBack) {
  std::string all, back;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string spelled = to_byte_characters(all);
  EXPECT_EQ(to_byte_characters(" a\n\xC3\xA9"), "\u0120a\u010A\u00C3\u00A9");
  EXPECT_TRUE(append_token_bytes(spelled, back));
  EXPECT_EQ(back, all);
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    EXPECT_EQ(to_byte_characters({&one, 1}).size(),
              static_cast<size_t>(byte_character_size(static_cast<uint8_t>(byte))))
        << byte;
  }
  EXPECT_FALSE(append_token_bytes("a b", back)) << "a blank stands for no byte";
  EXPECT_EQ(back, all) << "nothing is appended";
}

TEST(ByteLevel, CategoriesAreThoseOfUnicode16) {
  int letters = 0, numbers = 0, white = 0;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    letters += category_of(code) == unicode::letter;
    numbers += category_of(code) == unicode::number;
    white += category_of(code) == unicode::white_space;
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(numbers, 1911);
  EXPECT_EQ(white, 25);
}

TEST(ByteLevel, TextIsCutByThePatternOfGpt2) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces_of("Hello my friend, how's 12 days?!"),
            (Pieces{"Hello", " my", " friend", ",", " how", "'s", " 12", " days", "?!"}));
  EXPECT_EQ(pieces_of("we'll've he'd I'm 's 'S x'"),
            (Pieces{"we", "'ll", "'ve", " he", "'d", " I", "'m", " '", "s", " '", "S", " x", "'"}));
  EXPECT_EQ(pieces_of("'re 'r 'l"), (Pieces{"'re", " '", "r", " '", "l"}));
  EXPECT_EQ(pieces_of("a   b\t\tc \n d  "), (Pieces{"a", "  ", " b", "\t", "\t", "c", " \n", " d", "  "}));
  EXPECT_EQ(pieces_of("x\u3000\u3000y \u3000z"), (Pieces{"x", "\u3000", "\u3000", "y", " ", "\u3000", "z"}));
  EXPECT_EQ(pieces_of("a\u00E9\u4E2D1\u0664.e\u0301"),
            (Pieces{"a\u00E9\u4E2D", "1\u0664", ".", "e", "\u0301"}));
}

TEST(ByteLevel, TheEndOfATextIsTheEndWhateverStandsBehindIt) {
  for (const std::string text : {"a", " ", " a", "'", "'l", "'r", "\u4E2D", "12", "..", "  "}) {
    std::string together;
    for (const std::string& piece : pieces_of(text)) together += piece;
    EXPECT_EQ(together, text);
  }
  for (size_t size = 1; size < 70; ++size) {
    EXPECT_EQ(pieces_of(std::string(size, 'a')).size(), 1u) << size;
    EXPECT_EQ(pieces_of(" " + std::string(size, 'z') + "1").front().size(), size + 1);
  }
}

TEST(Merges, TheLowestRankMergesFirstAndOfEqualOnesTheLeftmost) {
  EXPECT_EQ(texts_of(small.tokenizer(), "hello world"),
            (std::vector<std::string>{"hello", " wor", "l", "d"}));
  const Made three(Pairs{{"a", "a"}});
  EXPECT_EQ(texts_of(three.tokenizer(), "aaa"), (std::vector<std::string>{"aa", "a"}));
  const Made order(Pairs{{"b", "c"}, {"a", "b"}});
  EXPECT_EQ(texts_of(order.tokenizer(), "abc"), (std::vector<std::string>{"a", "bc"}));
}

TEST(Merges, AMergeThatBecomesPossibleLateGoesFirstIfItsRankIsLower) {
  // "abc d" has rank 0 but comes to be only by the others.
  Made inverted(Pairs{{"c", "d"}, {"a", "b"}, {"ab", "c"}});
  inverted.vocabulary.push_back("abcx");
  inverted.merges.insert(inverted.merges.begin(),
                         {inverted.id("abc"), inverted.id("x"), inverted.id("abcx")});
  EXPECT_EQ(texts_of(inverted.tokenizer(), "abcx"), (std::vector<std::string>{"abcx"}));
  EXPECT_EQ(texts_of(inverted.tokenizer(), "abcd"), (std::vector<std::string>{"ab", "cd"}));
}

TEST(Merges, OfAPairThatIsThereTwiceTheLastRankHolds) {
  Made twice(Pairs{{"a", "b"}, {"b", "c"}});
  EXPECT_EQ(texts_of(twice.tokenizer(), "abc"), (std::vector<std::string>{"ab", "c"}));
  twice.merges.push_back(twice.merges.front());
  EXPECT_EQ(texts_of(twice.tokenizer(), "abc"), (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(twice.tokenizer().merges().size(), 2u);
}

TEST(Merges, LongWordsMergeAsShortOnesDo) {
  // A word beyond the length up to which ranks are searched anew is the same word at its end.
  const Made made(Pairs{{"a", "b"}, {"ab", "ab"}, {"c", "a"}, {"abab", "abab"}});
  const ByteBpe tokenizer = made.tokenizer({.use_regex = false});
  std::string text;
  for (int i = 0; i < 60; ++i) {
    const Ids before = tokenizer.tokenize(text).ids;
    const std::string unit = ".ababababcab.";
    Ids expected = before;
    const Ids one = tokenizer.tokenize(unit).ids;
    expected.insert(expected.end(), one.begin(), one.end());
    text += unit;
    ASSERT_EQ(tokenizer.tokenize(text).ids, expected) << i;
  }
}

TEST(Merges, TwoPairsOfOneTokenMergeByTheirOwnRanks) {
  Made made(Pairs{{"b", "c"}, {"a", "bc"}, {"a", "b"}, {"c", "d"}});
  made.merges = {
      {made.id("a"), made.id("bc"), made.id("abc")}, made.merges[2], made.merges[3], made.merges[0]};
  made.merges.push_back({made.id("ab"), made.id("c"), made.id("abc")});
  EXPECT_EQ(texts_of(made.tokenizer(), "abc"), (std::vector<std::string>{"abc"}));
  EXPECT_EQ(texts_of(made.tokenizer(), "abcd"), (std::vector<std::string>{"ab", "cd"}))
      << "ab and c merge after c and d, though a and bc give the same token before";
}

// A word by its definition: of all neighbours that merge the pair of the lowest rank is merged, the leftmost first.
std::vector<std::string> merged_one_by_one(const Pairs& pairs, const std::string& word) {
  std::vector<std::string> symbols;
  for (const char byte : word) symbols.emplace_back(1, byte);
  for (;;) {
    size_t lowest = pairs.size(), at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = std::find(pairs.begin(), pairs.end(), std::pair(symbols[i], symbols[i + 1]));
      const auto rank = static_cast<size_t>(found - pairs.begin());
      if (rank < lowest) lowest = rank, at = i;
    }
    if (lowest == pairs.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(Merges, OfCharactersAreThoseOfTheWholeWord) {
  const Pairs pairs{{"\xE4", "\xB8"}, {"\xE4\xB8", "\xAD"}, {"\x9B", "\xBD"}, {"\xE5", "\x9B\xBD"},
                    {"\xBD", "\xE4"}, {"\xAD", "\xE5"},     {"中", "国"},     {"\xA0", "\xE5"},
                    {"\xE3", "\x81"}, {"\x80", "a"},        {"a", "b"},       {"\xC3", "\xA9"}};
  const ByteBpe tokenizer = Made(pairs).tokenizer();
  const std::vector<std::string> characters{"中", "国", "你", "好", "の", "가", "é",
                                            "Я",  "a",  "b",  "1",  ",",  " ",  "😀"};
  std::mt19937 random(3);
  for (int draw = 0; draw < 20'000; ++draw) {
    std::string text;
    for (uint32_t left = random() % 14; left > 0; --left) text += characters[random() % characters.size()];
    std::vector<std::string> expected;
    Starts starts;
    for (const std::string& word : pieces_of(text)) {
      const std::vector<std::string> tokens = merged_one_by_one(pairs, word);
      starts.push_back(1);
      starts.resize(starts.size() + tokens.size() - 1);
      expected.insert(expected.end(), tokens.begin(), tokens.end());
    }
    ASSERT_EQ(texts_of(tokenizer, text), expected) << text;
    ASSERT_EQ(tokenizer.tokenize(text).word_starts, starts) << text;
  }
}

TEST(ByteBpe, WordsBeginWithThePiecesOfThePattern) {
  const TokenizedText text = small.tokenizer().tokenize("hello world");
  EXPECT_EQ(text.word_starts, (Starts{1, 1, 0, 0}));
  EXPECT_TRUE(small.tokenizer().tokenize("").ids.empty());
}

TEST(ByteBpe, ABlankIsPutBeforeTextThatHasNone) {
  const ByteBpe prefix = small.tokenizer({.add_prefix_space = true});
  EXPECT_EQ(texts_of(prefix, "wor"), (std::vector<std::string>{" wor"}));
  EXPECT_EQ(texts_of(prefix, " wor"), (std::vector<std::string>{" wor"}));
  EXPECT_EQ(texts_of(prefix, "\u3000wor"), (std::vector<std::string>{" ", "\xE3", "\x80", "\x80", "w", "or"}))
      << "another white space is none";
  EXPECT_TRUE(prefix.tokenize("").ids.empty());
  const auto id = static_cast<int32_t>(small.vocabulary.size());
  const ByteBpe added = small.tokenizer({.add_prefix_space = true}, {{.id = id, .content = "<x>"}});
  EXPECT_EQ(texts_of(added, "wor<x>wor"), (std::vector<std::string>{" wor", "<x>", " wor"}))
      << "every text between added tokens gets one";
}

TEST(ByteBpe, BytesThatTheVocabularyLacksAreLeftOutOrUnknown) {
  Made few(Pairs{}, "ab");
  EXPECT_EQ(few.tokenizer().tokenize("axxb").ids, (Ids{0, 1}));
  EXPECT_TRUE(few.tokenizer().tokenize("xx").ids.empty());
  EXPECT_EQ(few.tokenizer().tokenize("a xx b xx a xx").ids, (Ids{0, 1, 0}))
      << "a word of no token comes again";
  few.vocabulary.push_back("<unk>");
  EXPECT_EQ(few.tokenizer({.unknown_byte_token = "<unk>"}).tokenize("axxb").ids, (Ids{0, 2, 2, 1}));
  EXPECT_EQ(few.tokenizer({.unknown_byte_token = "<unk>", .fuse_unknown = true}).tokenize("xaxxb").ids,
            (Ids{2, 0, 2, 1}));
}

TEST(ByteBpe, AWordThatIsATokenIsItOnlyWhereMergesAreIgnored) {
  Made made(Pairs{{"a", "b"}});
  made.vocabulary.push_back("abc");
  made.vocabulary.push_back("a123456789012345678");
  const auto last = static_cast<int32_t>(made.vocabulary.size()) - 1;
  EXPECT_EQ(made.tokenizer().tokenize("abc").ids, (Ids{made.id("ab"), made.id("c")}));
  const ByteBpe whole = made.tokenizer({.use_regex = false, .ignore_merges = true});
  EXPECT_EQ(whole.tokenize("abc").ids, (Ids{last - 1}));
  EXPECT_EQ(whole.tokenize("a123456789012345678").ids, (Ids{last}));
}

TEST(ByteBpe, OffsetsCountCharactersAndAreTrimmed) {
  const auto ranges = [](const ByteBpe& tokenizer, std::string_view text) {
    TokenizedText tokens;
    Ranges offsets;
    tokenizer.tokenize(text, tokens, offsets);
    EXPECT_EQ(tokens.ids, tokenizer.tokenize(text).ids) << text;
    EXPECT_EQ(tokens.word_starts, tokenizer.tokenize(text).word_starts) << text;
    return offsets;
  };
  EXPECT_EQ(ranges(small.tokenizer(), "\u4E2Dhello wor"), (Ranges{{0, 1}, {0, 1}, {0, 1}, {1, 6}, {6, 10}}));
  EXPECT_EQ(ranges(small.tokenizer({.trim_offsets = true}), "hello wor"), (Ranges{{0, 5}, {6, 9}}));
  const ByteBpeOptions prefix{.add_prefix_space = true, .trim_offsets = true, .trim_keeps_prefix = true};
  EXPECT_EQ(ranges(small.tokenizer(prefix), "wor"), (Ranges{{0, 3}})) << "the blank was not in the text";
  EXPECT_EQ(ranges(small.tokenizer({.trim_offsets = true, .trim_keeps_prefix = false}), " wor"),
            (Ranges{{1, 4}}));
  EXPECT_EQ(ranges(small.tokenizer({.compose = true}), "e\u0301x"), (Ranges{{0, 1}, {0, 1}, {2, 3}}));
  const auto id = static_cast<int32_t>(small.vocabulary.size());
  const std::vector<AddedToken> added{{.id = id, .content = "<m>", .lstrip = true}};
  EXPECT_EQ(ranges(small.tokenizer({}, added), "h  <m>o"), (Ranges{{0, 1}, {1, 6}, {6, 7}}));
  EXPECT_EQ(ranges(small.tokenizer({.trim_offsets = true}, added), "h  <m>o"),
            (Ranges{{0, 1}, {3, 6}, {6, 7}}));
}

TEST(ByteBpe, AddedTokensAreFoundInComposedText) {
  const auto id = static_cast<int32_t>(small.vocabulary.size());
  const std::vector<AddedToken> added{{.id = id, .content = "caf\u00E9", .normalized = true}};
  EXPECT_EQ(small.tokenizer({.compose = true}, added).tokenize("cafe\u0301").ids, (Ids{id}));
  EXPECT_NE(small.tokenizer({}, added).tokenize("cafe\u0301").ids, (Ids{id}));
}

TEST(ByteBpe, MalformedUtf8ReadsAsReplacementCharacters) {
  const ByteBpe tokenizer = small.tokenizer();
  EXPECT_EQ(tokenizer.tokenize("a\xFF\xE4\xB8z").ids, tokenizer.tokenize("a\uFFFD\uFFFDz").ids);
  EXPECT_EQ(tokenizer.tokenize("\xED\xA0\x80").ids, tokenizer.tokenize("\uFFFD\uFFFD\uFFFD").ids)
      << "a surrogate";
  EXPECT_EQ(tokenizer.tokenize("\xE0\x80\x80").ids, tokenizer.tokenize("\uFFFD\uFFFD\uFFFD").ids)
      << "overlong";
}

TEST(ByteBpe, RefusesWhatCannotBe) {
  const auto made = [](std::vector<std::string> vocabulary, std::vector<Merge> merges,
                       ByteBpeOptions options = {}, std::vector<AddedToken> added = {}) {
    ByteBpe(std::move(vocabulary), std::move(merges), std::move(options), std::move(added), {});
  };
  EXPECT_NO_THROW(made({"a", "b", "ab"}, {{0, 1, 2}}));
  EXPECT_THROW(made({"a", "a"}, {}), InputError) << "twice";
  EXPECT_THROW(made({"a\xFF"}, {}), InputError) << "not UTF-8";
  EXPECT_THROW(made({"a", "b", "ab"}, {{0, 1, 3}}), InputError) << "no such token";
  EXPECT_THROW(made({"a", "b", "ab"}, {{-1, 1, 2}}), InputError);
  EXPECT_THROW(made({"a", "b", "ab"}, {{1, 0, 2}}), InputError) << "another token";
  EXPECT_THROW(made({"a"}, {}, {.unknown_byte_token = "<unk>"}), InputError);
  EXPECT_THROW(made({"a"}, {}, {}, {{.id = 5, .content = "x"}}), InputError) << "a gap";
  EXPECT_THROW(made({"a"}, {}, {}, {{.id = 0, .content = "x"}}), InputError) << "another token's id";
}

TEST(ByteBpe, TheFingerprintChangesWithWhateverDecidesIds) {
  const uint64_t one = small.tokenizer().fingerprint();
  EXPECT_EQ(one, small.tokenizer().fingerprint());
  EXPECT_EQ(one, small.tokenizer({.trim_offsets = true}).fingerprint()) << "of offsets alone";
  EXPECT_NE(one, small.tokenizer({.compose = true}).fingerprint());
  EXPECT_NE(one, small.tokenizer({.add_prefix_space = true}).fingerprint());
  EXPECT_NE(one, small.tokenizer({.use_regex = false}).fingerprint());
  EXPECT_NE(one, small.tokenizer({.ignore_merges = true}).fingerprint());
  EXPECT_NE(one, small.tokenizer({.fuse_unknown = true}).fingerprint());
  EXPECT_NE(one, small.tokenizer({.unknown_byte_token = "h"}).fingerprint());
  Made other = small;
  std::swap(other.merges[0], other.merges[1]);
  EXPECT_NE(one, other.tokenizer().fingerprint());
  other = small;
  other.vocabulary.push_back("xyz");
  EXPECT_NE(one, other.tokenizer().fingerprint());
}

TEST(ByteBpe, ThreadsAndInstancesShareNothingThatChangesIds) {
  Made other(Pairs{{"l", "o"}, {"w", "o"}});
  const ByteBpe a = small.tokenizer(), b = other.tokenizer();
  const std::string text = "hello world lower yellow whole will hellohellohellohello owl";
  const Ids first = a.tokenize(text).ids;
  Ids second;  // of a thread that knows no other instance
  std::thread([&] { second = b.tokenize(text).ids; }).join();
  ASSERT_NE(first, second);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(a.tokenize(text).ids, first);
        ASSERT_EQ(b.tokenize(text).ids, second);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void expect_equal_ids_with_offsets_within(const ByteBpe& tokenizer, int texts) {
  std::mt19937 random(7);
  const std::string alphabet = "hello wor'sdt<m>  \t\xCC\x81\xE4\xB8\xAD\xE3\x80\x80\xC3\xA9";
  for (int i = 0; i < texts; ++i) {
    std::string text;
    for (unsigned n = random() % 80; n > 0; --n)
      text.push_back(random() % 4 ? alphabet[random() % alphabet.size()] : static_cast<char>(random()));
    const std::string copy(
        text);  // exactly as long as it is, so that a sanitizer sees every byte read too many
    TokenizedText tokens, again;
    Ranges offsets;
    tokenizer.tokenize(copy, tokens);
    tokenizer.tokenize(copy, again, offsets);  // by another scanner
    ASSERT_EQ(tokens.ids, again.ids);
    ASSERT_EQ(tokens.word_starts, again.word_starts);
    const std::string valid = to_valid_utf8(copy);
    const auto characters =
        std::count_if(valid.begin(), valid.end(), [](char c) { return (c & 0xC0) != 0x80; });
    for (const CharacterRange& range : offsets)
      ASSERT_TRUE(0 <= range.begin && range.begin <= range.end && range.end <= characters);
  }
}

TEST(ByteBpe, RandomBytesNeverCrashAndOffsetsStayWithinTheText) {
  const auto added = [](const Made& made) {
    const auto id = static_cast<int32_t>(made.vocabulary.size());
    return std::vector<AddedToken>{{.id = id, .content = "<m>", .lstrip = true, .rstrip = true},
                                   {.id = id + 1, .content = "e\u0301", .normalized = true}};
  };
  const ByteBpeOptions rules{.compose = true, .add_prefix_space = true, .trim_offsets = true};
  expect_equal_ids_with_offsets_within(small.tokenizer(rules, added(small)), 20'000);
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    if (byte != 'o' && byte != 0xAD && byte != 0x80) bytes.push_back(static_cast<char>(byte));
  const Made lacking(Pairs{{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"\xE4", "\xB8"}}, bytes);
  for (const bool regex : {true, false})
    for (const bool whole : {true, false})
      for (const bool fuse : {true, false}) {
        const ByteBpeOptions other{.use_regex = regex, .ignore_merges = whole, .fuse_unknown = fuse};
        expect_equal_ids_with_offsets_within(small.tokenizer(other, added(small)), 2'000);
        expect_equal_ids_with_offsets_within(lacking.tokenizer(other), 2'000);
        ByteBpeOptions unknown = other;
        unknown.unknown_byte_token = "h";
        expect_equal_ids_with_offsets_within(lacking.tokenizer(unknown), 2'000);
      }
}

TEST(Nfc, ComposesInCanonicalOrderAndLeavesWhatIsExcluded) {
  EXPECT_EQ(compose("e\u0301"), "\u00E9");
  EXPECT_EQ(compose("e\u0301\u0323"), "\u1EB9\u0301") << "marks in canonical order, the lower one composes";
  EXPECT_EQ(compose("a\u0315\u0301x"), "\u00E1\u0315x")
      << "a mark that stays lets one of a higher class pass";
  EXPECT_EQ(compose("a\u0301\u0301"), "\u00E1\u0301") << "the second of the same class is blocked";
  EXPECT_EQ(compose("a\u0305\u0301"), "a\u0305\u0301") << "though the first one of that class stays a mark";
  EXPECT_EQ(compose("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(compose("\u1100\u1161\u11A7"), "\uAC00\u11A7") << "no tail";
  EXPECT_EQ(compose("\uAC01\u11A8"), "\uAC01\u11A8") << "a syllable with a tail takes no other";
  EXPECT_EQ(compose("\u212B\u0958"), "\u00C5\u0915\u093C");
  EXPECT_EQ(compose("\u0344"), "\u0308\u0301");
  EXPECT_EQ(compose("\u0301a"), "\u0301a");
  EXPECT_EQ(compose(""), "");
}

TEST(Nfc, WhatIsSurelyComposedIsItsOwnComposition) {
  std::mt19937 random(3);
  const std::vector<uint32_t> tricky = {0x41,   0x65,   0x301,  0x323,  0x344,  0x1100, 0x1161, 0x11A8,
                                        0xAC00, 0xAC01, 0x212B, 0x958,  0x9C7,  0x9BE,  0xE9,   0x4E2D,
                                        0xFB1D, 0x1F71, 0x3042, 0x3099, 0x304C, 0x0F73, 0x2126, 0x1D15E};
  int surely = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (unsigned n = 1 + random() % 5; n > 0; --n)
      append_code_point(random() % 8 ? tricky[random() % tricky.size()] : random() % 0xD800, text);
    const std::string composed = compose(text);
    EXPECT_EQ(compose(composed), composed);
    if (!is_surely_composed(text)) continue;
    ++surely;
    ASSERT_EQ(composed, text);
  }
  EXPECT_GT(surely, 1000);
  EXPECT_TRUE(is_surely_composed("plain ASCII text, \u4E2D\u6587, \u00E9\u00FC \uAC00"));
  EXPECT_FALSE(is_surely_composed("e\u0301"));
}

}  // namespace
}  // namespace funicular::text::byte_bpe_tests
