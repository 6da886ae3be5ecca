#include "funicular/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "funicular/data/datasets.h"
#include "funicular/data/joined_dataset.h"
#include "funicular/data/other_document.h"
#include "store_fixture.h"

namespace funicular::data {
namespace {

Mixture mixture(std::vector<std::pair<int64_t, double>> parts) {
  std::vector<MixturePart> all;
  for (const auto& [samples, weight] : parts)
    all.push_back({"corpus " + std::to_string(all.size()), samples, weight});
  return Mixture(std::move(all));
}

TEST(Mixture, EveryBeginningOfARunHasTheSharesOfTheWeights) {
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    std::vector<double> weights(2 + random() % 4);
    double sum = 0;
    for (double& weight : weights) sum += weight = 1 + static_cast<double>(random() % 1000);
    std::vector<std::pair<int64_t, double>> parts;
    for (const double weight : weights) parts.push_back({7, weight / sum});
    const Mixture mixed = mixture(parts);
    std::vector<int64_t> counts(parts.size());
    for (int64_t draw = 0; draw < 500; ++draw) {
      EXPECT_EQ(mixed.drawn(draw), counts);
      const auto [part, ordinal] = mixed.place(draw);
      EXPECT_EQ(ordinal, counts[static_cast<size_t>(part)]++) << "draws of a part follow each other";
      for (size_t i = 0; i < parts.size(); ++i)
        EXPECT_LE(std::abs(static_cast<double>(counts[i]) - static_cast<double>(draw + 1) * parts[i].second),
                  0.5 * static_cast<double>(parts.size() - 1) + 1e-6);
    }
  }
}

TEST(Mixture, SharesAreExactForTheLongestRuns) {
  const Mixture mixed = mixture({{10, 0.7}, {10, 0.3}});
  const int64_t draws = int64_t{1} << 50;
  const std::vector<int64_t> counts = mixed.drawn(draws);
  EXPECT_EQ(counts[0] + counts[1], draws);
  EXPECT_EQ(counts[0], (draws * 7 + 5) / 10);
  EXPECT_EQ(mixed.drawn(1000), (std::vector<int64_t>{700, 300}));
}

TEST(Mixture, WrongWeightsAreRefusedWithTheOnesThatWouldDo) {
  const auto refused = [](std::vector<std::pair<int64_t, double>> parts) {
    return input_error([&] { mixture(std::move(parts)); });
  };
  EXPECT_NE(refused({{5, 0.7}, {5, 0.2}})
                .find("sum to 0.9, not to 1; in these proportions they are 0.777777778 0.222222222"),
            std::string::npos);
  EXPECT_NE(refused({{5, 1.2}, {5, -0.2}}).find("corpus 1: expected a weight above 0, found -0.2"),
            std::string::npos);
  EXPECT_NE(refused({{5, std::nan("")}, {5, 1}}).find("corpus 0: expected a weight above 0"),
            std::string::npos);
  EXPECT_NE(refused({{0, 0.5}, {5, 0.5}}).find("corpus 0: the corpus is empty"), std::string::npos);
  EXPECT_NE(refused({{5, 1 - 1e-11}, {5, 1e-11}}).find("too small"), std::string::npos);
  EXPECT_NE(refused({}).find("at least one corpus"), std::string::npos);
  EXPECT_NO_THROW(mixture({{5, 0.3333333}, {5, 0.3333333}, {5, 0.3333334}}));
}

std::vector<Draw> draws_of(const MixedSampler& sampler, int64_t begin, int64_t end) {
  std::vector<Draw> all;
  for (int64_t batch = begin; batch < end; ++batch)
    for (const Draw& draw : sampler.batch(batch)) all.push_back(draw);
  return all;
}

TEST(MixedSampler, APartIsUsedUpInADifferentOrderEachTime) {
  const MixedSampler sampler(mixture({{30, 0.8}, {4, 0.2}}), {.seed = 3, .batch_size = 10});
  std::vector<std::vector<int64_t>> small(1);
  for (const Draw& draw : draws_of(sampler, 0, 10)) {
    if (draw.sample_id < 30) continue;
    if (small.back().size() == 4) small.emplace_back();
    small.back().push_back(draw.sample_id - 30);
  }
  ASSERT_EQ(small.size(), 5u) << "20 draws of 4 samples";
  std::set<std::vector<int64_t>> orders(small.begin(), small.end());
  EXPECT_GE(orders.size(), 3u);
  for (auto& order : small) {
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3}));
  }
}

TEST(MixedSampler, EachCorpusHasAnOrderOfItsOwn) {
  const MixedSampler sampler(mixture({{50, 0.5}, {50, 0.5}}), {.seed = 2, .batch_size = 100});
  std::vector<int64_t> first, second;
  for (const Draw& draw : sampler.batch(0))
    (draw.sample_id < 50 ? first : second).push_back(draw.sample_id % 50);
  EXPECT_NE(first, second);
}

TEST(MixedSampler, EachBatchHasTheSharesAndEachDrawItsNumber) {
  const MixedSampler sampler(mixture({{100, 0.5}, {50, 0.3}, {9, 0.2}}), {.seed = 1, .batch_size = 10});
  EXPECT_EQ(sampler.batches_per_epoch(), 16) << "of 159 samples";
  for (int64_t batch = 0; batch < 50; ++batch) {
    const std::vector<Draw> draws = sampler.batch(batch);
    ASSERT_EQ(draws.size(), 10u);
    std::vector<int> counts(3);
    for (size_t i = 0; i < draws.size(); ++i) {
      EXPECT_EQ(draws[i].draw_id, batch * 10 + static_cast<int64_t>(i));
      ++counts[draws[i].sample_id < 100 ? 0 : draws[i].sample_id < 150 ? 1 : 2];
    }
    EXPECT_EQ(counts, (std::vector<int>{5, 3, 2})) << "batch " << batch;
  }
}

TEST(MixedSampler, BatchSizesChangeNothingAndARunGoesOnFromItsStepAlone) {
  const auto all = [](int64_t size) {
    const MixedSampler sampler(mixture({{40, 0.7}, {11, 0.3}}), {.seed = 8, .batch_size = size});
    std::vector<int64_t> samples;
    for (const Draw& draw : draws_of(sampler, 0, 120 / size)) samples.push_back(draw.sample_id);
    return samples;
  };
  EXPECT_EQ(all(1), all(12));
  EXPECT_EQ(all(1), all(60));
  const MixedSampler sampler(mixture({{40, 0.7}, {11, 0.3}}), {.seed = 8, .batch_size = 5});
  const MixedSampler other(mixture({{40, 0.7}, {11, 0.3}}), {.seed = 9, .batch_size = 5});
  int same = 0;
  for (int64_t batch = 0; batch < 20; ++batch)
    for (size_t i = 0; i < 5; ++i)
      same += sampler.batch(batch)[i].sample_id == other.batch(batch)[i].sample_id;
  EXPECT_LT(same, 30) << "another seed is another order";
}

TEST(MixedSampler, OfOneCorpusIsTheSamplerAndWithoutShufflingTheOrderOfTheData) {
  const Sampler::Options options{.seed = 4, .batch_size = 8};
  const MixedSampler mixed(mixture({{24, 1}}), options);
  const Sampler plain(24, options);
  for (int64_t batch = 0; batch < 9; ++batch)
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(mixed.batch(batch)[i].sample_id, plain.batch(batch)[i].sample_id);
      EXPECT_EQ(mixed.batch(batch)[i].draw_id, plain.batch(batch)[i].draw_id);
    }
  const MixedSampler ordered(mixture({{3, 0.5}, {3, 0.5}}), {.shuffle = false, .batch_size = 12});
  std::vector<int64_t> first, second;
  for (const Draw& draw : ordered.batch(0)) (draw.sample_id < 3 ? first : second).push_back(draw.sample_id);
  EXPECT_EQ(first, (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(second, (std::vector<int64_t>{3, 4, 5, 3, 4, 5}));
}

class JoinedTest : public ScratchTest {
 protected:
  /// A corpus of documents of one row of these letters each.
  std::shared_ptr<const Dataset> corpus(const std::string& name, const std::vector<std::string>& texts) {
    std::vector<MemorySource::Row> rows;
    for (const std::string& text : texts) rows.push_back({{text}, "", true});
    build_token_store(letters(), MemorySource(rows, 1, false), folder_ / name);
    return std::make_shared<ChunkDataset>(TokenStore::open(folder_ / name), 4);
  }
};

TEST_F(JoinedTest, SamplesOfThePartsFollowEachOtherAndKeepTheirContents) {
  const auto a = corpus("a", {"a", "a b", "a b c d e f"}), b = corpus("b", {"x y", "z"});
  const JoinedDataset joined({a, b});
  ASSERT_EQ(joined.size(), a->size() + b->size());
  std::set<int64_t> documents;
  for (int64_t i = 0; i < joined.size(); ++i) {
    const bool first = i < a->size();
    const Sample own = first ? a->get(i) : b->get(i - a->size());
    const Sample sample = joined.get(i);
    EXPECT_EQ(sample.sample_id, i);
    EXPECT_EQ(ids(sample.columns[0].tokens), ids(own.columns[0].tokens));
    documents.insert(joined.document_of(i));
  }
  EXPECT_EQ(documents.size(), 5u) << "documents of different corpora are different";
  EXPECT_THROW(joined.get(joined.size()), InputError);
  EXPECT_THROW(joined.get(-1), InputError);
  EXPECT_NE(joined.fingerprint(), JoinedDataset({b, a}).fingerprint());
  EXPECT_THROW(JoinedDataset(std::vector<std::shared_ptr<const Dataset>>()), InputError);
}

TEST_F(JoinedTest, AnotherDocumentIsOneOfTheSameCorpus) {
  const auto a = corpus("a", {"a", "a a", "a a a"}), b = corpus("b", {"x", "x x", "x x x"});
  const JoinedDataset joined({a, b});
  for (int64_t i = 0; i < joined.size(); ++i)
    for (uint64_t key = 0; key < 20; ++key) {
      const Sample::Column other = draw_other_document(joined, i, key, 1);
      ASSERT_GT(other.tokens.size(), 0u);
      EXPECT_EQ(other.tokens[0], joined.get(i).columns[0].tokens[0]);
      EXPECT_NE(other.tokens.size(), joined.get(i).columns[0].tokens.size());
    }
}

}  // namespace
}  // namespace funicular::data
