// Claims about scores that compare across vocabularies.
#include "funicular/task/corpus_score.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>
#include <vector>

#include "funicular/text/word_piece.h"

namespace funicular::task {
namespace {

TEST(CorpusScore, HidesWordsWholeSoThatNoPieceGivesAwayTheOthers) {
  std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.emplace_back(1, letter);
  const text::WordPiece tokenizer(vocabulary, {}, {});
  const objective::MaskedLm objective = scoring_objective(tokenizer, 64);

  std::vector<uint16_t> tokens;
  for (uint16_t i = 0; i < 60; ++i) tokens.push_back(static_cast<uint16_t>(5 + i % 26));
  const std::vector<uint8_t> starts(8, 0b01010101);  // words of two pieces
  data::Sample sample;
  sample.columns.push_back({data::TokenSpan(tokens.data(), tokens.size()), {starts.data(), 0}});
  for (int draw = 0; draw < 30; ++draw) {
    sample.draw_id = draw;
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample}, {1, false});
    const at::Tensor rows = batch["mlm_rows"];
    const std::set<int64_t> hidden(rows.const_data_ptr<int64_t>(),
                                   rows.const_data_ptr<int64_t>() + rows.numel());
    EXPECT_GE(hidden.size(), 8u) << "15 % of 60, and the rest of a word";
    EXPECT_LE(hidden.size(), 10u);
    for (const int64_t row : hidden) {
      const int64_t other = row % 2 == 1 ? row + 1 : row - 1;  // the first word is in the rows 1 and 2
      EXPECT_TRUE(hidden.contains(other)) << "draw " << draw << ", row " << row;
    }
  }
}

}  // namespace
}  // namespace funicular::task
