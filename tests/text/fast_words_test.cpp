// Blocks of 64 bytes and keys of words against definitions byte by byte, and the tokenisers that use them against
// their slower ways with offsets.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "funicular/text/ascii_words.h"
#include "funicular/text/byte_block.h"
#include "funicular/text/byte_bpe.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/character_bpe.h"
#include "funicular/text/piece_tokenizer.h"
#include "funicular/text/unigram.h"
#include "funicular/text/word_key.h"
#include "funicular/text/word_piece.h"

namespace funicular::text::fast_words_tests {
namespace {

bool is_letter(uint8_t byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

TEST(WordKeys, AreTheBytesAndTheirNumberWhateverStandsBehind) {
  std::string text;
  for (int i = 0; i < 40; ++i) text.push_back(static_cast<char>(0x81 + 3 * i));
  for (size_t size = 0; size <= WordKey::longest; ++size)
    for (size_t begin = 0; begin < 20; ++begin) {
      const WordKey key = WordKey::at(text.data() + begin, size);
      EXPECT_EQ(key, WordKey(std::string_view(text).substr(begin, size)));
      EXPECT_EQ(key.size(), size);
    }
  EXPECT_NE(WordKey(std::string_view("a\0", 2)), WordKey("a"));
}

TEST(WordKeys, LowerCaseChangesLettersAlone) {
  for (int byte = 0; byte < 128; ++byte)
    for (size_t place = 0; place < WordKey::longest; ++place) {
      std::string text(WordKey::longest, 'x'), lower = text;
      text[place] = static_cast<char>(byte);
      lower[place] = byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 0x20) : static_cast<char>(byte);
      EXPECT_EQ(WordKey(text).lower(), WordKey(lower)) << byte << " at " << place;
    }
}

TEST(ByteBlocks, ClassesHoldForEveryByteAtEveryPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string text(ByteBlock::size, '\0');
    for (size_t place = 0; place < ByteBlock::size; ++place) {
      text.assign(ByteBlock::size, byte == 0 ? '.' : '\0');
      text[place] = static_cast<char>(byte);
      const ByteBlock block(text.data());
      const uint64_t here = uint64_t{1} << place, other = byte == 0 ? ~here : 0;
      EXPECT_EQ(block.equal(static_cast<char>(byte)), here);
      EXPECT_EQ(block.letters(), is_letter(static_cast<uint8_t>(byte)) ? here : 0) << byte;
      EXPECT_EQ(block.not_ascii(), byte >= 128 ? here : 0) << byte;
      EXPECT_EQ(block.within('!', '~'), byte >= '!' && byte <= '~' ? here : other) << byte;
    }
  }
}

// Strings of few different characters, so that runs and their ends of every kind meet.
std::string random_text(std::mt19937& random, const std::vector<std::string>& parts, size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    const std::string& part = parts[random() % parts.size()];
    const size_t times = random() % 8 == 0 ? random() % 70 : 1;
    for (size_t i = 0; i < times; ++i) text += part;
  }
  return text;
}

const std::vector<std::string> mixed_parts{"a",  "B",   "z",    " ",  "  ",     "\t",     "\n", "'",
                                           "'s", "'re", "'l",   "ll", "ve",     "d'",     "1",  "90",
                                           ".",  "!?",  "\r\n", "\v", "\u00E9", "\u4E2D", " x"};

// The places where pieces begin, by the scalar way, as far as the block can know them.
uint64_t expected_starts(const char* at, const char* end) {
  const auto size = std::min<ptrdiff_t>(end - at, 64);
  ptrdiff_t known = 0;
  while (known < size && static_cast<int8_t>(at[known]) >= 0) ++known;
  const ptrdiff_t last = known < size || size == 64 ? known - 2 : size;
  uint64_t starts = 0;
  for (const char* piece = at; piece < end;) {
    piece = end_of_piece(piece, end);
    if (piece - at > last) break;
    starts |= uint64_t{1} << (piece - at);
  }
  return starts;
}

TEST(PieceStarts, EqualThePatternsWayByCharacters) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> ascii(mixed_parts.begin(), mixed_parts.end() - 3);
    std::string text = random_text(random, round % 2 == 0 ? mixed_parts : ascii, random() % 150);
    const size_t size = text.size();
    text.append(block_readable_behind, '\0');
    const char* const end = text.data() + size;
    for (const char* at = text.data(); at < end; at = end_of_piece(at, end)) {
      const PieceStarts found = starts_of_pieces(at, static_cast<size_t>(end - at));
      ASSERT_EQ(found.starts, expected_starts(at, end)) << text.substr(at - text.data()).c_str();
      const std::string_view block(at, static_cast<size_t>(std::min<ptrdiff_t>(end - at, 64)));
      ASSERT_EQ(found.in_doubt, std::any_of(block.begin(), block.end(), [](char c) { return c < 0; }));
    }
  }
}

TEST(PieceStarts, ContractionsEndPiecesAtEveryPlaceOfABlock) {
  for (size_t before = 0; before < 70; ++before)
    for (const char* const tail : {"'s", "'so", "'re", "'rex", "'ll'd", "'r", "'v", "'", "' t"}) {
      std::string text = std::string(before, 'a') + tail;
      const size_t size = text.size();
      text.append(block_readable_behind, '\0');
      ASSERT_EQ(starts_of_pieces(text.data(), size).starts, expected_starts(text.data(), text.data() + size))
          << before << tail;
    }
}

TEST(AsciiWordsOfABlock, AreRunsOfLettersAndDigitsAndSingleSigns) {
  std::mt19937 random(4);
  const std::vector<std::string> parts{"a", "B", "9", " ", "\t", "\n",   "\r",
                                       ".", "@", "_", "~", "\v", "\x7F", "\u00E9"};
  for (int round = 0; round < 4000; ++round) {
    const std::string text =
        random_text(random, round % 2 ? parts : std::vector(parts.begin(), parts.end() - 3), 64);
    const AsciiWords words(text.data());
    size_t known = 0;
    const auto kind = [&](size_t i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      if (is_letter(byte) || (byte >= '0' && byte <= '9')) return 'w';
      if (byte > ' ' && byte < 0x7F) return 's';
      return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r' ? ' ' : '?';
    };
    while (known < 64 && kind(known) != '?') ++known;
    ASSERT_EQ(words.known, known);
    uint64_t starts = words.starts, ends = words.ends;
    for (size_t i = 0; i < 64;) {
      const size_t begin = i++;
      if (kind(begin) == ' ' || kind(begin) == '?') continue;
      while (kind(begin) == 'w' && i < 64 && kind(i) == 'w') ++i;
      if (i >= std::min<size_t>(known, 64)) break;
      ASSERT_EQ(std::countr_zero(starts), static_cast<int>(begin)) << text;
      ASSERT_EQ(std::countr_zero(ends), static_cast<int>(i)) << text;
      starts &= starts - 1, ends &= ends - 1;
    }
    ASSERT_EQ(ends, 0u) << text;
  }
}

// The tokens of a text by the fast way and by the way that also finds offsets, which reads character by character.
void expect_same(const Tokenizer& tokenizer, const std::string& text) {
  TokenizedText slow;
  std::vector<CharacterRange> offsets;
  tokenizer.tokenize(text, slow, offsets);
  const TokenizedText fast = tokenizer.tokenize(text);
  ASSERT_EQ(fast.ids, slow.ids) << text;
  ASSERT_EQ(fast.word_starts, slow.word_starts) << text;
}

TEST(FastWords, OfByteBpeAreThoseOfTheWayWithOffsets) {
  std::vector<std::string> vocabulary;
  std::vector<Merge> merges;
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    vocabulary.push_back(to_byte_characters({&one, 1}));
  }
  const auto merge = [&](int32_t left, int32_t right) {
    const std::string token = vocabulary[static_cast<size_t>(left)] + vocabulary[static_cast<size_t>(right)];
    if (std::find(vocabulary.begin(), vocabulary.end(), token) != vocabulary.end()) return;
    merges.push_back({left, right, static_cast<int32_t>(vocabulary.size())});
    vocabulary.push_back(token);
  };
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i)
    merge(static_cast<int32_t>(random() % vocabulary.size()),
          static_cast<int32_t>(random() % vocabulary.size()));
  for (const char* const pair : {" a", "aB", "'s", "ll", "re", "90", "  "}) merge(pair[0], pair[1]);
  const ByteBpe tokenizer(vocabulary, merges, {.compose = true}, {{.id = 'a', .content = "a"}}, {});
  const ByteBpe plain(vocabulary, merges, {.add_prefix_space = true}, {}, {});
  for (int round = 0; round < 1500; ++round) {
    const std::string text = random_text(random, mixed_parts, random() % 300);
    expect_same(tokenizer, text);
    expect_same(plain, text);
  }
}

TEST(FastWords, OfWordPieceAreThoseOfTheWayWithOffsets) {
  std::vector<std::string> vocabulary{"[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"};
  for (const char* const piece : {"a",     "##a", "b",    "##b",  "B",
                                  "##B",   "ab",  "##ab", "z",    "##z",
                                  "1",     "##1", "90",   "##ll", "s",
                                  "##s",   "##d", "d",    ".",    "'",
                                  "!",     "e",   "##e",  "##ve", "aaaaaaaaaaaaaaaaaaaa",
                                  "\u4E2D"})
    vocabulary.push_back(piece);
  std::mt19937 random(6);
  const WordPiece lower(vocabulary, {}, {{.id = 4, .content = "[MASK]"}});
  const WordPiece cased(vocabulary, {.lowercase = false, .clean_text = false}, {});
  const WordPiece normalized(vocabulary, {}, {{.id = 5, .content = "a", .normalized = true}});
  for (int round = 0; round < 1500; ++round) {
    const std::string text = random_text(random, mixed_parts, random() % 300);
    expect_same(lower, text);
    expect_same(cased, text);
    expect_same(normalized, text);
  }
}

// Two words of equal first bytes that have the same place in each cache of at most 15 bits.
std::pair<std::string, std::string> words_of_one_slot() {
  std::unordered_map<uint64_t, std::string> words;
  for (int number = 0;; ++number) {
    const std::string word = "abcdefgh" + std::to_string(number);
    const auto [other, fresh] = words.emplace(WordKey(word).hash() >> (64 - 15), word);
    if (!fresh) return {other->second, word};
  }
}

TEST(FastWords, WordsOfOneSlotKeepTheirTokens) {
  const auto [first, second] = words_of_one_slot();
  const WordPiece tokenizer({"[UNK]", first, second}, {}, {});
  EXPECT_EQ(tokenizer.tokenize(first + " " + second + " " + first).ids, (std::vector<int32_t>{1, 2, 1}));
}

TEST(FastWords, OfUnigramAreThoseOfTheWayWithOffsets) {
  std::vector<std::string> pieces{"<unk>", "\u2581"};
  for (const char* const piece : {"a", "B", "z", "\u2581a", "\u2581aB", "'s", "ll", "90", "re", "'", ".", "!",
                                  "1", "\u4E2D", "\u4E2D\u4E2D", "aaaa", "\u2581x"})
    pieces.push_back(piece);
  std::vector<double> scores;
  std::mt19937 random(8);
  for (size_t i = 0; i < pieces.size(); ++i) scores.push_back(-static_cast<double>(random() % 12) / 2);
  using Prepend = SplitterStep::Prepend;
  for (const Prepend prepend : {Prepend::always, Prepend::first, Prepend::never}) {
    PieceRules rules;
    rules.splitter = {{.kind = SplitterStep::white_space},
                      {.kind = SplitterStep::metaspace, .prepend = prepend}};
    const PieceTokenizer tokenizer(std::make_unique<Unigram>(pieces, scores, 0, false), rules, {}, {});
    std::vector<std::string> parts = mixed_parts;
    for (const char* const word :
         {" a", " aB", " a.", " ll's", " aaaaaaaaaaaaaa", " zzzzzzzzzzzzzzz", "a aB x "}) {
      parts.push_back(word);
      parts.push_back(word);
    }
    for (int round = 0; round < 700; ++round)
      expect_same(tokenizer, random_text(random, parts, random() % 300));
  }
}

// All visible ASCII, a few other characters, and merges of which one joins "b" with the mark of the next word.
std::unique_ptr<CharacterBpe> merging_model(CharacterBpeOptions options) {
  const std::string mark = kBlankMark;
  std::vector<std::string> vocabulary{"<unk>", mark, "\u4E2D", "\u6587", "<0xC3>", "<0xA9>"};
  for (char byte = '!'; byte <= '~'; ++byte) vocabulary.emplace_back(1, byte);
  const auto id = [&](const std::string& token) {
    const auto found = std::find(vocabulary.begin(), vocabulary.end(), token);
    if (found == vocabulary.end())
      return vocabulary.push_back(token), static_cast<int32_t>(vocabulary.size()) - 1;
    return static_cast<int32_t>(found - vocabulary.begin());
  };
  std::vector<Merge> merges;
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"a", "B"},
                                                                                    {"l", "l"},
                                                                                    {mark, "aB"},
                                                                                    {"b", mark},
                                                                                    {"b" + mark, "a"},
                                                                                    {mark, "a"},
                                                                                    {"\u4E2D", "\u6587"},
                                                                                    {"9", "0"},
                                                                                    {"aB", "a"},
                                                                                    {mark, mark},
                                                                                    {"\u6587", "\u4E2D"},
                                                                                    {"a", "\u4E2D"}})
    merges.push_back({id(left), id(right), id(left + right)});
  return std::make_unique<CharacterBpe>(vocabulary, merges, std::move(options));
}

TEST(FastWords, OfMergesAreThoseOfTheWayWithOffsets) {
  PieceRules gemma, llama, newer;
  gemma.normalizer = {{.kind = NormalizerStep::replace_text, .pattern = " ", .content = kBlankMark}};
  llama.normalizer = {{.kind = NormalizerStep::prepend, .content = kBlankMark}, gemma.normalizer.front()};
  newer.splitter = {
      {.kind = SplitterStep::metaspace, .prepend = SplitterStep::Prepend::first, .split = false}};
  std::vector<std::string> parts = mixed_parts;
  for (const char* const word :
       {" a", " aB", "b ", "b a", "b", " b aB", "\u4E2D\u6587", "\u4E2D\u6587\u4E2D\u6587", "\u00E9\u00FC",
        "\u00FC\u00E9a", kBlankMark, " aaaaaaaaaaaaaa", "aB aB aB "})
    parts.insert(parts.end(), 2, word);
  std::mt19937 random(10);
  for (const PieceRules& rules : {gemma, llama, newer})
    for (const bool fuses : {false, true}) {
      const PieceTokenizer tokenizer(
          merging_model({.unknown_token = "<unk>", .fuse_unknown = fuses, .byte_fallback = true}), rules, {},
          {});
      for (int round = 0; round < 400; ++round)
        expect_same(tokenizer, random_text(random, parts, random() % 300));
    }
}

// Ends of the pieces of the best path, by all pairs of places.
std::vector<size_t> best_ends(const std::string& word, const std::unordered_map<std::string, double>& scores,
                              double unknown) {
  struct Best {
    double score = 0;
    size_t begin = 0;
    bool found = false;
  };
  std::vector<Best> best(word.size() + 1);
  best[0].found = true;
  const auto starts_character = [&](size_t i) { return i == word.size() || (word[i] & 0xC0) != 0x80; };
  for (size_t begin = 0; begin < word.size(); ++begin)
    for (size_t end = begin + 1, characters = 0; end <= word.size() && starts_character(begin); ++end) {
      if (!starts_character(end)) continue;
      const auto found = scores.find(word.substr(begin, end - begin));
      if (++characters > 1 && found == scores.end()) continue;
      const double score = best[begin].score + (found == scores.end() ? unknown : found->second);
      if (!best[end].found || score > best[end].score) best[end] = {score, begin, true};
    }
  std::vector<size_t> ends;
  for (size_t end = word.size(); end > 0; end = best[end].begin) ends.insert(ends.begin(), end);
  return ends;
}

TEST(UnigramModel, FindsTheBestOfAllPathsOfCharactersOfAnySize) {
  std::mt19937 random(9);
  const std::vector<std::string> characters{"a", "b", "\u00E9", "\u4E2D", "\u6587", "\U00020000"};
  const auto text = [&](size_t most) {
    std::string result;
    for (size_t i = 1 + random() % most; i > 0; --i) result += characters[random() % characters.size()];
    return result;
  };
  for (int model = 0; model < 20; ++model) {
    std::unordered_map<std::string, double> scores{{"<unk>", -9.0}};
    for (int i = 0; i < 60; ++i) scores[text(4)] = -static_cast<double>(random() % 1000) / 97;
    for (const std::string& one : characters)
      scores.try_emplace(one, -5.0 - static_cast<double>(random() % 7));
    std::vector<std::string> pieces{"<unk>"};
    std::vector<double> values{scores["<unk>"]};
    for (const auto& [piece, score] : scores)
      if (piece != "<unk>") pieces.push_back(piece), values.push_back(score);
    const Unigram unigram(pieces, values, 0, false);
    for (int round = 0; round < 60; ++round) {
      const std::string word = text(30);
      std::vector<WordPart> parts;
      unigram.encode(word, parts);
      std::vector<size_t> ends;
      for (const WordPart& part : parts) ends.push_back(part.end);
      ASSERT_EQ(ends, best_ends(word, scores, -1000)) << word;
    }
  }
}

}  // namespace
}  // namespace funicular::text::fast_words_tests
