#include "funicular/data/word_counter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/text/vocabulary_trainer.h"

namespace funicular::data {
namespace {

const text::TrainingRules kRules = text::training_rules({.kind = text::VocabularyKind::word_piece});

/// Two rows a piece: a word of each piece's own, and "often".
MemorySource rows(int pieces) {
  std::vector<MemorySource::Row> rows;
  for (int i = 0; i < pieces; ++i) {
    rows.push_back({{"word" + std::to_string(i)}});
    rows.push_back({{"often", "often"}});
  }
  for (MemorySource::Row& row : rows) row.columns.resize(2);
  return {std::move(rows), 2, false, 2};
}

/// Refuses pieces 5 and 7.
class BadSource final : public RowSource {
 public:
  int columns() const override { return 1; }
  bool has_labels() const override { return false; }
  size_t pieces() const override { return 9; }
  uint64_t piece_bytes(size_t) const override { return 1; }
  uint64_t read(size_t piece, const RowSink&) const override {
    if (piece == 5 || piece == 7) throw InputError("text", "piece {}", piece);
    return 0;
  }
};

TEST(CountWords, IsTheSameForAnyNumberOfThreads) {
  const MemorySource source = rows(60);
  const CountedWords one = count_words(source, kRules, {.threads = 1});
  EXPECT_EQ(one.words.size(), 61u);
  EXPECT_EQ(one.forgotten, 0u);
  for (const int threads : {2, 5}) {
    const CountedWords more = count_words(source, kRules, {.threads = threads});
    EXPECT_EQ(more.words.sorted(), one.words.sorted());
    EXPECT_EQ(more.bytes, one.bytes);
  }
}

TEST(CountWords, ForgetsTheRarestWordsBehindEachBlock) {
  const MemorySource source = rows(60);
  uint64_t bytes = 0;
  const WordCountingOptions options{
      .threads = 2, .most_words = 12, .pieces_in_block = 10, .progress = [&](uint64_t now) { bytes = now; }};
  const CountedWords found = count_words(source, kRules, options);
  // The first block brings 11 words, each later one 10.
  EXPECT_EQ(found.forgotten, 49u);
  EXPECT_EQ(found.words.size(), 12u);
  EXPECT_EQ(bytes, found.bytes);
  uint64_t often = 0;
  for (const text::CountedWord& word : found.words.sorted())
    if (word.text == "often") often = word.times;
  EXPECT_EQ(often, 120u);
  for (const int threads : {1, 5})
    EXPECT_EQ(count_words(source, kRules, {.threads = threads, .most_words = 12, .pieces_in_block = 10})
                  .words.sorted(),
              found.words.sorted());
}

TEST(CountWords, TellsTheFirstErrorOfTheSource) {
  for (const int threads : {1, 4}) {
    try {
      count_words(BadSource(), kRules, {.threads = threads});
      FAIL();
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), "[text] piece 5");
    }
  }
}

}  // namespace
}  // namespace funicular::data
