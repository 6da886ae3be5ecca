#include "funicular/data/datasets.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "store_fixture.h"

namespace funicular::data {
namespace {

class Datasets : public ScratchTest {
 protected:
  fs::path path() const { return folder_ / "a.tokens"; }
};

std::vector<int32_t> all_tokens(const TokenStore& store) {
  return ids(store.tokens({0, store.meta().tokens}).tokens);
}

TEST_F(Datasets, EachRowIsASampleWithItsLabel) {
  const auto rows = random_rows(300, 2);
  const auto store = make_store(path(), rows, 2, {.labels = LabelKind::values});
  const RowDataset dataset(store);
  ASSERT_EQ(dataset.size(), 300);
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(dataset.get(i).label, std::stod(rows[static_cast<size_t>(i)].label));
    const StoreRange document = store->document_rows(dataset.document_of(i));
    EXPECT_TRUE(document.begin <= static_cast<uint64_t>(i) && static_cast<uint64_t>(i) < document.end);
  }
  EXPECT_THROW(dataset.get(300), InputError);
  EXPECT_THROW(dataset.get(-1), InputError);
}

TEST_F(Datasets, ChunksCoverEachTokenOnceAndNeverCrossDocuments) {
  const auto store = make_store(path(), random_rows(1500, 2), 2);
  for (int64_t length : {1, 2, 7, 126, 100000}) {
    const ChunkDataset dataset(store, length);
    std::vector<int32_t> joined;
    std::map<int64_t, std::vector<size_t>> sizes;  // of the pieces, by document
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const Sample sample = dataset.get(i);
      EXPECT_EQ(sample.sample_id, i);
      EXPECT_EQ(sample.columns.size(), 1u);
      const auto piece = ids(sample.columns[0].tokens);
      joined.insert(joined.end(), piece.begin(), piece.end());
      sizes[dataset.document_of(i)].push_back(piece.size());
    }
    EXPECT_EQ(joined, all_tokens(*store)) << "length " << length;
    for (const auto& [document, pieces] : sizes) {
      const uint64_t tokens = store->document_tokens(document).size();
      EXPECT_EQ(pieces.size(), (tokens + static_cast<uint64_t>(length) - 1) / static_cast<uint64_t>(length));
      const auto [low, high] = std::minmax_element(pieces.begin(), pieces.end());
      EXPECT_LE(*high, static_cast<size_t>(length));
      EXPECT_LE(*high - *low, 1u) << "cut evenly";
    }
  }
}

TEST_F(Datasets, ChunksSkipDocumentsWithoutTokens) {
  std::vector<MemorySource::Row> rows;
  for (int i = 0; i < 1000; ++i) rows.push_back({{i % 200 == 150 ? "a b c" : ""}, ""});
  const ChunkDataset dataset(make_store(path(), rows, 1), 2);
  ASSERT_EQ(dataset.size(), 10);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(dataset.document_of(i), 150 + 200 * (i / 2));
    EXPECT_EQ(dataset.get(i).columns[0].tokens.size(), i % 2 == 0 ? 2u : 1u);
  }
  EXPECT_EQ(ChunkDataset(make_store(folder_ / "b", {{{""}, ""}}, 1), 2).size(), 0);
  EXPECT_THROW(dataset.get(10), InputError);
}

TEST_F(Datasets, WordStartsBelongToTheirTokens) {
  const auto store = make_store(path(), random_rows(200, 1), 1);
  const ChunkDataset dataset(store, 5);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const auto column = dataset.get(i).columns[0];
    for (size_t t = 0; t < column.tokens.size();
         ++t)  // in the test's vocabulary continuations are the last 26
      EXPECT_EQ(column.word_starts[t], column.tokens[t] < 31);
  }
}

TEST_F(Datasets, ASubsetGivesTheMarkedSamplesInOrder) {
  const auto base = std::make_shared<RowDataset>(make_store(path(), random_rows(2000, 1), 1));
  std::vector<uint64_t> marks(32);
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < 2000; ++i)
    if ((i % 7 == 3 && i > 700) || i == 0 || i == 1999) {
      marks[static_cast<size_t>(i / 64)] |= uint64_t{1} << (i % 64);
      expected.push_back(i);
    }
  marks.back() |= ~uint64_t{0} << (2000 % 64);  // marks beyond the end do not count
  const SubsetDataset subset(base, marks, 0);
  ASSERT_EQ(subset.size(), static_cast<int64_t>(expected.size()));
  for (int64_t i = 0; i < subset.size(); ++i) {
    EXPECT_EQ(subset.base_index(i), expected[static_cast<size_t>(i)]);
    EXPECT_EQ(subset.get(i).sample_id, i);
    EXPECT_EQ(ids(subset.get(i).columns[0].tokens),
              ids(base->get(expected[static_cast<size_t>(i)]).columns[0].tokens));
  }
  EXPECT_THROW(subset.get(subset.size()), InputError);
  EXPECT_THROW(SubsetDataset(base, std::vector<uint64_t>(31), 0), InputError);
}

std::set<int64_t> documents_of(const Dataset& dataset) {
  std::set<int64_t> documents;
  for (int64_t i = 0; i < dataset.size(); ++i) documents.insert(dataset.document_of(i));
  return documents;
}

TEST_F(Datasets, ASplitHoldsOutWholeDocumentsAndLosesNothing) {
  const auto store = make_store(path(), random_rows(8000, 1), 1);
  const auto chunks = std::make_shared<ChunkDataset>(store, 20);
  const Split split = split_dataset(chunks, 0.1, 7);
  EXPECT_EQ(split.train->size() + split.held_out->size(), chunks->size());
  const auto train = documents_of(*split.train), held_out = documents_of(*split.held_out);
  for (int64_t document : held_out) EXPECT_FALSE(train.contains(document));
  // Binomial: about 2,000 documents, 10 % of them; six standard deviations are 80.
  EXPECT_NEAR(static_cast<double>(held_out.size()), 0.1 * static_cast<double>(train.size() + held_out.size()),
              80);
  EXPECT_EQ(documents_of(*split_dataset(chunks, 0.1, 7).held_out), held_out) << "the same for the same seed";
  EXPECT_NE(documents_of(*split_dataset(chunks, 0.1, 8).held_out), held_out) << "another for another seed";
}

TEST_F(Datasets, ASplitDoesNotDependOnHowDocumentsAreCut) {
  const auto store = make_store(path(), random_rows(2000, 1), 1);
  const auto held_out = [&](int64_t length) {
    return documents_of(*split_dataset(std::make_shared<ChunkDataset>(store, length), 0.2, 7).held_out);
  };
  EXPECT_EQ(held_out(10), held_out(128));
}

TEST_F(Datasets, ASplitLeavesNoSideEmpty) {
  std::vector<MemorySource::Row> rows = {{{"a"}, ""}, {{"b"}, ""}, {{"c"}, ""}};
  const auto base = std::make_shared<RowDataset>(make_store(path(), rows, 1));
  for (double fraction : {1e-9, 0.5, 1 - 1e-9})
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Split split = split_dataset(base, fraction, seed);
      EXPECT_GE(split.train->size(), 1);
      EXPECT_GE(split.held_out->size(), 1);
    }
  rows.resize(1);
  EXPECT_THROW(split_dataset(std::make_shared<RowDataset>(make_store(folder_ / "b", rows, 1)), 0.5, 1),
               InputError);
  for (double fraction : {0.0, 1.0, -1.0, std::nan("")})
    EXPECT_THROW(split_dataset(base, fraction, 1), InputError);
}

TEST_F(Datasets, FingerprintsTellDataSetsAndCutsApart) {
  const auto store = make_store(path(), random_rows(300, 1), 1);
  const auto chunks = std::make_shared<ChunkDataset>(store, 20);
  const Split split = split_dataset(chunks, 0.2, 1), other = split_dataset(chunks, 0.2, 2);
  const std::set<uint64_t> prints = {RowDataset(store).fingerprint(),       chunks->fingerprint(),
                                     ChunkDataset(store, 21).fingerprint(), split.train->fingerprint(),
                                     split.held_out->fingerprint(),         other.train->fingerprint()};
  EXPECT_EQ(prints.size(), 6u);
  EXPECT_EQ(ChunkDataset(TokenStore::open(path()), 20).fingerprint(), chunks->fingerprint());
}

}  // namespace
}  // namespace funicular::data
