// Claims about rerankers: the texts of a query stay together, each with dropout of its own, and a step of parts is the
// step of the whole.
#include "funicular/objective/reranking.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/temporary_folder.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/text/word_piece.h"

namespace funicular::objective {
namespace {

text::WordPiece reranking_tokenizer() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 95; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

/// Queries with two, three, four, two, … texts, over memory that it owns.
class QueryRows {
 public:
  explicit QueryRows(int64_t queries) {
    for (int64_t query = 0; query < queries; ++query)
      for (int64_t text = 0; text <= texts_of(query); ++text) {
        for (int64_t i = 0; i < 2 + (query + text) % 4; ++i)
          tokens_[{query, text}].push_back(static_cast<uint16_t>(5 + (query * 31 + text * 17 + i * 7) % 95));
      }
    for (int64_t query = 0; query < queries; ++query) {
      for (int64_t text = 1; text <= texts_of(query); ++text)
        labels_[query].push_back(static_cast<double>((query + text) % 3));
    }
    for (int64_t query = 0; query < queries; ++query) {
      data::Sample& sample = samples.emplace_back();
      for (int64_t text = 0; text <= texts_of(query); ++text) {
        const auto& own = tokens_.at({query, text});
        sample.columns.push_back({data::TokenSpan(own.data(), own.size()), {}});
      }
      sample.shares = labels_.at(query);
      sample.sample_id = query;
      sample.draw_id = 100 + query;
    }
  }
  static int64_t texts_of(int64_t query) { return 2 + query % 3; }
  std::vector<data::Sample> samples;

 private:
  std::map<std::pair<int64_t, int64_t>, std::vector<uint16_t>> tokens_;
  std::map<int64_t, std::vector<double>> labels_;
};

TEST(Reranking, EachTextIsAPairWithDropoutOfItsOwn) {
  const auto tokenizer = reranking_tokenizer();
  const Reranking objective(tokenizer, {.sequence = {}, .loss = {.loss = RankingLoss::list_net}});
  const QueryRows rows(3);
  const MicroBatch batch = objective.collate(rows.samples, {1, true});
  EXPECT_EQ(batch.packing.sequences(), 9);
  EXPECT_EQ(batch.counts.at("list-net"), 3);
  const std::vector<int64_t>& draws = batch.packing.host_draw_ids;
  EXPECT_EQ(std::set<int64_t>(draws.begin(), draws.end()).size(), 9U);
  EXPECT_EQ(draws[3], 101 * kMostListTexts + 1) << "the second text of the second query";
  EXPECT_EQ(batch["list_places"][3].item<int64_t>(), kMostListTexts + 1);
  EXPECT_EQ(batch[kListLabels].isnan().logical_not().sum().item<int64_t>(), 9);
  EXPECT_EQ(batch["queries"][0].item<int64_t>(), batch["queries"][1].item<int64_t>());
  EXPECT_NE(batch["queries"][1].item<int64_t>(), batch["queries"][2].item<int64_t>());
  int64_t tokens = 0;
  for (const data::Sample& sample : rows.samples) tokens += objective.length(sample);
  EXPECT_EQ(batch.packing.tokens(), tokens);
  const Reranking asked(tokenizer, {.sequence = {}, .labelled = false});
  EXPECT_FALSE(asked.collate(rows.samples, {1, false}).tensors.contains("labels"));
}

using StoredRows = std::vector<data::MemorySource::Row>;

ListRows lists_of(const StoredRows& rows, bool join, std::vector<size_t>* texts = nullptr) {
  const TemporaryFolder folder;
  const auto tokenizer = reranking_tokenizer();
  const fs::path path = folder.path() / "rows.tokens";
  data::build_token_store(tokenizer, data::MemorySource(rows, 2, /*has_labels=*/true), path,
                          {.labels = data::LabelKind::values});
  const auto store = data::TokenStore::open(path);
  if (texts) {
    const TextLists lists(store, join);
    for (int64_t list = 0; list < lists.size(); ++list) texts->push_back(lists.get(list).columns.size() - 1);
  }
  return list_rows(*store, join);
}

/// A list or a triplet per document, all of one query.
TEST(Reranking, DocumentsOfSeveralTextsAreListsOfTheirOwn) {
  const StoredRows rows{{{"w1", "w2"}, "1", true},  {{"w1", "w3"}, "0", false}, {{"w1", "w2"}, "1", true},
                        {{"w1", "w4"}, "0", false}, {{"w1", "w5"}, "1", true},  {{"w1", "w6"}, "0", true}};
  for (const bool join : {true, false}) {
    std::vector<size_t> texts;
    const ListRows lists = lists_of(rows, join, &texts);
    EXPECT_EQ(texts, join ? (std::vector<size_t>{2, 2, 2}) : (std::vector<size_t>{2, 2, 1, 1}));
    EXPECT_EQ(lists.scattered, 0);
  }
}

TEST(Reranking, QueriesWhoseRowsAreNoNeighboursAreCounted) {
  const StoredRows rows{{{"w1", "w2"}, "1", true}, {{"w3", "w2"}, "0", true}, {{"w1", "w4"}, "1", true},
                        {{"w3", "w4"}, "0", true}, {{"w3", "w5"}, "0", true}, {{"w1", "w5"}, "0", true}};
  const ListRows lists = lists_of(rows, true);
  EXPECT_EQ(lists.begins, (std::vector<uint64_t>{0, 1, 2, 3, 5, 6}));
  EXPECT_EQ(lists.scattered, 2);
}

TEST(Reranking, TheFirstTextMayBeTheRelevantOne) {
  const auto tokenizer = reranking_tokenizer();
  const Reranking objective(
      tokenizer, {.sequence = {}, .loss = {.loss = RankingLoss::margin_mse}, .first_is_relevant = true});
  const QueryRows rows(2);
  const MicroBatch batch = objective.collate(rows.samples, {1, true});
  EXPECT_TRUE(at::equal(batch["relevance"], at::tensor({1, 0, 1, 0, 0}, at::kDouble)));
  const Reranking by_labels(tokenizer, {.sequence = {}, .loss = {.loss = RankingLoss::margin_mse}});
  EXPECT_FALSE(by_labels.collate(rows.samples, {1, true}).tensors.contains("relevance"));
}

TEST(Reranking, TheActivationIsPartOfARun) {
  const auto tokenizer = reranking_tokenizer();
  const Reranking plain(tokenizer, {.sequence = {}, .loss = {}}),
      other(tokenizer, {.sequence = {}, .loss = {}, .activation = format::ScoreActivation::sigmoid});
  EXPECT_NE(plain.identity(), other.identity());
}

/// The sum of a batch's losses in `parts` micro-batches, by the whole batch's count.
double loss_of(const Reranking& objective, const Model& model, std::span<const data::Sample> samples,
               size_t part) {
  double sum = 0;
  Counts counts;
  for (size_t begin = 0; begin < samples.size(); begin += part) {
    const MicroBatch batch =
        objective.collate(samples.subspan(begin, std::min(part, samples.size() - begin)), {1, true});
    LossSink sink;
    model.forward({}, batch, {}, sink);
    for (const LossSink::Term& term : sink.terms()) sum += term.sum.item<double>();
    add_counts(counts, batch.counts);
  }
  return sum / counts.begin()->second;
}

TEST(Reranking, MicroBatchesAddUpToTheBatch) {
  const auto tokenizer = reranking_tokenizer();
  format::ModelConfig config;
  config.encoder.vocabulary = 100;
  config.encoder.width = 32;
  config.encoder.layers = 1;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 32;
  config.encoder.positions.rows = 32;
  config.num_labels = 1;
  const QueryRows rows(7);
  for (const RankingLoss loss : {RankingLoss::mse, RankingLoss::margin_mse, RankingLoss::list_net,
                                 RankingLoss::rank_net, RankingLoss::lambda}) {
    const Reranking objective(tokenizer, {.sequence = {}, .loss = {.loss = loss}});
    const Model model = objective.build({.config = config, .dtype = at::kDouble, .seed = 3});
    const double whole = loss_of(objective, model, rows.samples, 7);
    EXPECT_GT(whole, 0);
    for (const size_t part : {1, 2, 3})
      EXPECT_NEAR(loss_of(objective, model, rows.samples, part), whole, 1e-12);
  }
}

}  // namespace
}  // namespace funicular::objective
