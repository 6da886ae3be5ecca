#include "funicular/data/split_words.h"

#include <map>

#include "funicular/text/new_words.h"
#include "store_fixture.h"

namespace funicular::data {
namespace {

class SplitWordsTest : public ScratchTest {
 protected:
  std::shared_ptr<const TokenStore> store(std::vector<MemorySource::Row> rows, int columns = 1) {
    build_token_store(letters(), MemorySource(std::move(rows), columns, false), folder_ / "s.tokens");
    return TokenStore::open(folder_ / "s.tokens");
  }
};

using Found = std::map<std::string, uint64_t>;

Found by_word(const SplitWords& counted) {
  Found all;
  for (const SplitWord& word : counted.words) all[word.word] = word.times;
  return all;
}

TEST_F(SplitWordsTest, AreCountedOverAllRowsAndColumns) {
  const SplitWords found = count_split_words(
      *store({{{"ab c ab", "abc x"}, "", false}, {{"", "ab \u4E2D\u4E2D"}, "", false}}, 2), letters());
  EXPECT_EQ(by_word(found), (Found{{"ab", 3}, {"abc", 1}}));
  EXPECT_EQ(found.occurrences, 8u);
  EXPECT_EQ(found.tokens, 3u * 2 + 3 + 2 + 2);
  EXPECT_EQ(found.unknown, 2u);
}

TEST_F(SplitWordsTest, OfScriptsWithoutBlanksAreCountedAsCharacters) {
  std::vector<std::string> vocabulary = letters().vocabulary();
  for (const char* piece : {"\u4E2D", "\u3042", "##\u308A"}) vocabulary.emplace_back(piece);
  const text::WordPiece tokenizer(vocabulary, {}, {});
  const std::string text =
      "ab \u4E2D\u4E2D \u3042\u308A\u308A";  // three hiragana in a row: one word to the tokeniser
  build_token_store(tokenizer, MemorySource({{{text}, "", false}}, 1, false), folder_ / "k.tokens");
  const SplitWords found = count_split_words(*TokenStore::open(folder_ / "k.tokens"), tokenizer);
  EXPECT_EQ(found.occurrences, 6u);
  EXPECT_EQ(found.characters, 5u);
}

TEST_F(SplitWordsTest, AreInTheOrderOfTheTokensThatTheyWouldSave) {
  const SplitWords found = count_split_words(*store({{{"ab ab ab abcde zz zz yy"}, "", false}}), letters());
  std::vector<std::string> words;
  std::vector<uint64_t> saved;
  for (const SplitWord& word : found.words) words.push_back(word.word), saved.push_back(word.saved());
  EXPECT_EQ(words, (std::vector<std::string>{"abcde", "ab", "zz", "yy"}));
  EXPECT_EQ(saved, (std::vector<uint64_t>{4, 3, 2, 1}));
}

TEST_F(SplitWordsTest, ThoseProposedAreFrequentEnoughOfEnoughPiecesAndNoMoreThanAskedFor) {
  const SplitWords counted =
      count_split_words(*store({{{"ab ab ab abcde zzz zzz yy"}, "", false}}), letters());
  const auto proposed = [&](ProposalOptions options) {
    std::string all;
    for (const SplitWord& word : propose_words(counted, letters(), options)) all += word.word + " ";
    return all;
  };
  EXPECT_EQ(proposed({.count = 9, .least_times = 1}), "abcde zzz ab yy ");
  EXPECT_EQ(proposed({.count = 2, .least_times = 1}), "abcde zzz ");
  EXPECT_EQ(proposed({.count = 9, .least_times = 2}), "zzz ab ");
  EXPECT_EQ(proposed({.count = 9, .least_times = 1, .least_pieces = 3}), "abcde zzz ");
}

TEST_F(SplitWordsTest, WordsThatTheTokenizerWouldCutAreNotProposed) {
  // Words by hand: "a.b" is one word in the store, and three to the tokeniser.
  std::vector<std::string> vocabulary = letters().vocabulary();
  vocabulary.push_back(".");
  const text::WordPiece tokenizer(vocabulary, {}, {});
  build_token_store(tokenizer, MemorySource({{{"a.b a.b xy"}, "", false}}, 1, false), folder_ / "p.tokens",
                    {.presegmented = true});
  const SplitWords counted = count_split_words(*TokenStore::open(folder_ / "p.tokens"), tokenizer);
  EXPECT_EQ(by_word(counted), (Found{{"a.b", 2}, {"xy", 1}}));
  const auto proposed = propose_words(counted, tokenizer, {.least_times = 1});
  ASSERT_EQ(proposed.size(), 1u);
  EXPECT_EQ(proposed[0].word, "xy");
}

TEST_F(SplitWordsTest, RecountingGivesTheTokensThatTheExtendedTokenizerMakes) {
  const std::string text = "ab abc abcd xab ab q abq";
  const SplitWords counted = count_split_words(*store({{{text}, "", false}}), letters());
  const text::WordPiece extended = text::with_new_words(letters(), {{"ab", {}}, {"abcd", {}}});
  const Recount now = recount(counted, extended);
  EXPECT_EQ(now.tokens, extended.tokenize(text).ids.size());
  EXPECT_LT(now.tokens, counted.tokens);
  EXPECT_EQ(now.newly_unknown, 0u);
}

TEST_F(SplitWordsTest, RecountingTellsWordsThatBecomeUnknown) {
  // "xyz" is x ##yz; behind "xy" there is no piece for the z.
  const text::WordPiece tokenizer({"[UNK]", "x", "y", "##y", "##yz"}, {}, {});
  build_token_store(tokenizer, MemorySource({{{"xyz xyz xy"}, "", false}}, 1, false), folder_ / "u.tokens");
  const SplitWords counted = count_split_words(*TokenStore::open(folder_ / "u.tokens"), tokenizer);
  EXPECT_EQ(text::characters_without_piece(tokenizer), std::vector<std::string>{"z"});
  const Recount now = recount(counted, text::with_new_words(tokenizer, {{"xy", {1, 3}}}));
  EXPECT_EQ(now.newly_unknown, 2u);
  EXPECT_EQ(now.tokens, 3u);
}

TEST_F(SplitWordsTest, AStoreOfAnotherTokenizerIsRefused) {
  const auto made = store({{{"ab"}, "", false}});
  EXPECT_NE(input_error([&] {
              count_split_words(*made, text::WordPiece({"[UNK]", "a"}, {}, {}));
            }).find("tokeni"),
            std::string::npos);
}

}  // namespace
}  // namespace funicular::data
