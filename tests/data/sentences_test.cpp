#include "funicular/data/sentences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "store_fixture.h"

namespace funicular::data {
namespace {

class Sentences : public ScratchTest {
 protected:
  std::shared_ptr<const TokenStore> store(const std::vector<MemorySource::Row>& rows, int columns = 1) {
    return make_store(folder_ / ("s" + std::to_string(made_++) + ".tokens"), rows, columns);
  }
  int made_ = 0;
};

/// Rows of so many letters; a negative number begins a document.
std::vector<MemorySource::Row> rows_of(const std::vector<int>& lengths) {
  std::vector<MemorySource::Row> rows;
  for (const int length : lengths) {
    std::string text;
    for (int i = 0; i < std::abs(length); ++i) text += std::string(1, static_cast<char>('a' + i % 26)) + " ";
    rows.push_back({{text}, "", length < 0 || rows.empty()});
  }
  return rows;
}

std::vector<size_t> sizes(const Dataset& dataset) {
  std::vector<size_t> all;
  for (int64_t i = 0; i < dataset.size(); ++i) all.push_back(dataset.get(i).columns[0].tokens.size());
  return all;
}

TEST_F(Sentences, FillASampleWithWholeRows) {
  const auto text = store(rows_of({-4, 3, 5, -2, 6, -1}));
  EXPECT_EQ(sizes(SentencesDataset(text, 8, false)), (std::vector<size_t>{7, 5, 8, 1}));
  const SentencesDataset across(text, 8, true);
  EXPECT_EQ(sizes(across), (std::vector<size_t>{7, 7, 7}));
  EXPECT_TRUE(across.get(0).separators.empty());
  EXPECT_EQ(across.get(1).separators, std::vector<int32_t>{5});
  EXPECT_EQ(across.get(2).separators, std::vector<int32_t>{6});
  EXPECT_EQ(across.document_of(1), 0);
  EXPECT_EQ(across.document_of(2), 1);
}

/// Where rows begin, as places of the column.
std::vector<uint64_t> row_places(const Sample& sample) {
  std::vector<uint64_t> all;
  for (const uint64_t token : sample.columns[0].row_starts.tokens)
    all.push_back(token - sample.columns[0].row_starts.begin);
  return all;
}

TEST_F(Sentences, KnowWhereRowsBegin) {
  const auto text = store(rows_of({-4, 3, 5, -2, 6, -1}));
  using Places = std::vector<uint64_t>;
  const SentencesDataset within(text, 12, false), across(text, 16, true);
  EXPECT_EQ(row_places(within.get(0)), (Places{4, 7}));
  EXPECT_EQ(row_places(within.get(1)), Places{2});
  EXPECT_EQ(row_places(within.get(2)), Places{});
  EXPECT_EQ(row_places(across.get(0)), (Places{4, 7, 12}));
  EXPECT_EQ(row_places(across.get(1)), Places{6});
  EXPECT_EQ(row_places(SentencesDataset(store(rows_of({-2, 21, 3})), 8, false).get(1)), Places{});
}

TEST_F(Sentences, HaveRowStartsOfEachPartOfTheirTokens) {
  const auto text = store(rows_of({-4, 3, 5}));
  const RowStarts rows = SentencesDataset(text, 12, false).get(0).columns[0].row_starts;
  const auto part = [&](size_t first, size_t count) {
    const RowStarts found = rows.subspan(first, count);
    std::vector<uint64_t> all(found.tokens.begin(), found.tokens.end());
    for (uint64_t& token : all) token -= found.begin;
    return all;
  };
  using Places = std::vector<uint64_t>;
  EXPECT_EQ(part(0, 12), (Places{4, 7}));
  EXPECT_EQ(part(0, 7), Places{4});  // strictly within
  EXPECT_EQ(part(4, 8), Places{3});
  EXPECT_EQ(part(5, 4), Places{2});
  EXPECT_EQ(part(7, 5), Places{});
}

TEST_F(Sentences, CutARowThatIsLongerThanASample) {
  const auto text = store(rows_of({-2, 21, 3}));
  EXPECT_EQ(sizes(SentencesDataset(text, 8, false)), (std::vector<size_t>{2, 8, 8, 8}));
  EXPECT_EQ(sizes(SentencesDataset(text, 1, true)), std::vector<size_t>(26, 1));
}

TEST_F(Sentences, HoldEachTokenOnceNeverTooManyAndAreFullWhereTheNextRowFits) {
  const auto rows = random_rows(900, 2);
  const auto text = store(rows, 2);
  for (const int64_t length : {1, 2, 7, 30, 126, 100000})
    for (const bool across : {false, true}) {
      const SentencesDataset dataset(text, length, across);
      std::vector<int32_t> joined;
      int64_t previous = 0;
      for (int64_t i = 0; i < dataset.size(); ++i) {
        const Sample sample = dataset.get(i);
        const auto tokens = static_cast<int64_t>(sample.columns[0].tokens.size() + sample.separators.size());
        ASSERT_GE(tokens, 1);
        ASSERT_LE(tokens, length);
        if (i > 0 && (across || dataset.document_of(i) == dataset.document_of(i - 1))) {
          ASSERT_GT(previous + tokens + 1, length)
              << "sample " << i << " would have fitted into the one before";
        }
        previous = tokens;
        if (!across) {
          ASSERT_TRUE(sample.separators.empty());
        }
        const auto own = ids(sample.columns[0].tokens);
        joined.insert(joined.end(), own.begin(), own.end());
      }
      EXPECT_EQ(joined, ids(text->tokens({0, text->meta().tokens}).tokens));
    }
}

TEST_F(Sentences, HaveASeparatorWhereADocumentBeginsAndNowhereElse) {
  const auto text = store(random_rows(600, 1));
  const SentencesDataset dataset(text, 60, true);
  std::vector<uint64_t> found, expected;
  uint64_t begin = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const Sample sample = dataset.get(i);
    for (const int32_t place : sample.separators) found.push_back(begin + static_cast<uint64_t>(place));
    begin += sample.columns[0].tokens.size();
    found.push_back(begin);  // where a sample ends, none is needed
  }
  for (int64_t document = 1; document < text->documents(); ++document)
    if (text->document_tokens(document).size() > 0) expected.push_back(text->document_tokens(document).begin);
  for (const uint64_t place : expected)
    EXPECT_TRUE(std::binary_search(found.begin(), found.end(), place) || place == 0) << place;
  begin = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const Sample sample = dataset.get(i);
    for (const int32_t place : sample.separators)
      EXPECT_TRUE(std::binary_search(expected.begin(), expected.end(), begin + static_cast<uint64_t>(place)));
    begin += sample.columns[0].tokens.size();
  }
}

TEST_F(Sentences, OfAnotherLengthOrModeAreOtherData) {
  const auto text = store(rows_of({-4, 3, 5}));
  const uint64_t one = SentencesDataset(text, 8, false).fingerprint();
  EXPECT_EQ(one, SentencesDataset(text, 8, false).fingerprint());
  EXPECT_NE(one, SentencesDataset(text, 9, false).fingerprint());
  EXPECT_NE(one, SentencesDataset(text, 8, true).fingerprint());
  EXPECT_THROW(SentencesDataset(text, 0, false), InputError);
  const SentencesDataset dataset(text, 8, false);
  EXPECT_THROW(dataset.get(dataset.size()), InputError);
  EXPECT_THROW(dataset.get(-1), InputError);
}

}  // namespace
}  // namespace funicular::data
