#include "funicular/text/sequence_template.h"

#include <gtest/gtest.h>

#include "funicular/base/error.h"
#include "funicular/text/word_piece.h"

namespace funicular::text {
namespace {

using Step = SequenceTemplate::Step;

TEST(SequenceTemplate, BertsHasTwoSpecialTokensAndThreeForAPair) {
  const SequenceTemplate bert = SequenceTemplate::bert("[CLS]", 7, "[SEP]", 8);
  EXPECT_EQ(bert.special_count(1), 2);
  EXPECT_EQ(bert.special_count(2), 3);
  const std::vector<Step> pair(bert.steps(2).begin(), bert.steps(2).end());
  EXPECT_EQ(pair, (std::vector<Step>{Step::special(7, 0), Step::text(0, 0), Step::special(8, 0),
                                     Step::text(1, 1), Step::special(8, 1)}));
  EXPECT_TRUE(bert.missing().empty());
  EXPECT_EQ(SequenceTemplate::bert("[CLS]", 7, "[SEP]", -1).missing(), std::vector<std::string>{"[SEP]"});
  EXPECT_EQ(SequenceTemplate().special_count(2), 0);
}

TEST(SequenceTemplate, RefusesTextsThatAreLeftOutOrTwiceOrInAnotherOrder) {
  const std::vector<Step> single{Step::text(0, 0)}, pair{Step::text(0, 0), Step::text(1, 0)};
  EXPECT_NO_THROW(SequenceTemplate(single, pair));
  EXPECT_THROW(SequenceTemplate({Step::special(1, 0)}, pair), InputError);
  EXPECT_THROW(SequenceTemplate({Step::text(0, 0), Step::text(0, 0)}, pair), InputError);
  EXPECT_THROW(SequenceTemplate(single, {Step::text(1, 0), Step::text(0, 0)}), InputError);
  EXPECT_THROW(SequenceTemplate(single, {Step::text(0, 0)}), InputError);
}

TEST(SequenceTemplate, IsOfOneOrTwoTexts) {
  const SequenceTemplate form;
  for (const int columns : {0, 3}) {
    EXPECT_THROW(form.steps(columns), InputError) << columns;
    EXPECT_THROW(form.special_count(columns), InputError) << columns;
  }
}

TEST(SequenceTemplate, ATokenizersNamesWhatItsVocabularyLacks) {
  const WordPiece without({"[UNK]", "[CLS]"}, {}, {});
  EXPECT_EQ(without.sequence().missing(), std::vector<std::string>{"[SEP]"});
  EXPECT_EQ(without.token_text(1), "[CLS]");
  EXPECT_EQ(WordPiece({"[UNK]", "##a"}, {}, {}).token_text(1), "a");
  EXPECT_EQ(without.description(), "WordPiece, 2 tokens, lower-cased");
}

}  // namespace
}  // namespace funicular::text
