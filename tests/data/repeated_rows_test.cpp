#include "funicular/data/repeated_rows.h"

#include <gtest/gtest.h>

#include "funicular/base/temporary_folder.h"
#include "funicular/data/row_source.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/text/word_piece.h"

namespace funicular::data {
namespace repeated_rows_tests {

class RepeatedRows : public testing::Test {
 protected:
  std::shared_ptr<const TokenStore> store(const std::vector<std::vector<std::string>>& rows,
                                          const std::vector<std::string>& classes = {"no", "yes"}) {
    std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      vocabulary.emplace_back(1, letter);
      vocabulary.push_back(std::string("##") + letter);
    }
    std::vector<MemorySource::Row> all;
    for (const auto& row : rows) all.push_back({{row.begin() + 1, row.end()}, row[0]});
    const fs::path path = folder_.path() / std::to_string(++stores_);
    StoreBuildOptions options;
    options.labels = LabelKind::classes;
    options.label_names = classes;
    build_token_store(text::WordPiece(vocabulary, {}, {}),
                      MemorySource(all, static_cast<int>(rows[0].size()) - 1, true), path, options);
    return TokenStore::open(path);
  }

 private:
  TemporaryFolder folder_;
  int stores_ = 0;
};

void expect(const Repeats& found, int64_t rows, int64_t repeated, int64_t other_label) {
  EXPECT_EQ(found.rows, rows);
  EXPECT_EQ(found.repeated, repeated);
  EXPECT_EQ(found.other_label, other_label);
  EXPECT_FALSE(found.is_estimate);
}

TEST_F(RepeatedRows, AreCountedWithinAFileAndInTwo) {
  const TextIndex trained(
      *store({{"yes", "a b"}, {"yes", "a b"}, {"no", "A  B "}, {"no", "c"}, {"yes", ""}, {"no", ""}}));
  expect(trained.within(), 6, 2, 1);  // rows without a text repeat nothing
  const TextIndex held_out(*store({{"no", "c"}, {"yes", "c"}, {"no", "a b"}, {"no", "b a"}}));
  expect(held_out.within(), 4, 1, 1);
  expect(held_out.shared_with(trained), 4, 3, 1);
  expect(trained.shared_with(held_out), 6, 4, 2);  // "a b" is "no" there, twice "yes" here
}

TEST_F(RepeatedRows, OfPairsHaveBothTexts) {
  const TextIndex pairs(*store({{"yes", "a", "b c"}, {"yes", "a b", "c"}, {"no", "a", "b c"}}));
  expect(pairs.within(), 3, 1, 1);
}

TEST_F(RepeatedRows, TextsOfUnknownTokensAreNotTakenForEqual) {
  const auto rows = store({{"yes", "1 a"}, {"no", "2 a"}, {"no", "b"}, {"no", "b"}});  // digits are unknown
  expect(TextIndex(*rows).within(), 4, 2, 1);
  expect(TextIndex(*rows, /*unknown=*/1).within(), 4, 1, 0);
}

TEST_F(RepeatedRows, OfFilesWithOtherClassesDoNotCompareLabels) {
  const TextIndex one(*store({{"yes", "a"}})), other(*store({{"yes", "a"}}, {"yes", "no"}));
  expect(one.shared_with(other), 1, 1, 0);
}

TEST_F(RepeatedRows, OfLargeFilesAreEstimatedFromAPartOfTheTexts) {
  std::vector<std::vector<std::string>> rows;
  for (int copy = 0; copy < 2; ++copy)
    for (int number = 0; number < 4000; ++number) {
      std::string text;
      for (int rest = number + 1; rest > 0; rest /= 26)
        text += std::string(1, static_cast<char>('a' + rest % 26)) + " ";
      rows.push_back({copy == 1 && number % 4 == 0 ? "no" : "yes", text});
    }
  const auto all = store(rows);
  const TextIndex whole(*all), part(*all, /*unknown=*/-1, 1000);
  expect(whole.within(), 8000, 4000, 1000);
  const Repeats about = part.within();
  EXPECT_TRUE(about.is_estimate);
  EXPECT_NEAR(static_cast<double>(about.repeated), 4000, 800);
  EXPECT_NEAR(static_cast<double>(about.other_label), 1000, 400);
  EXPECT_NEAR(static_cast<double>(whole.shared_with(part).repeated), 8000, 1600);
}

}  // namespace repeated_rows_tests
}  // namespace funicular::data
