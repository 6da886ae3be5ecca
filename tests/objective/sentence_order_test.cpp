#include "funicular/objective/sentence_order.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/registry.h"
#include "funicular/text/word_piece.h"
#include "funicular/train/source.h"
#include "views.h"

namespace funicular::objective::sentence_order_tests {
namespace {

constexpr int kWords = 300;

text::WordPiece number_words() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < kWords; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

/// Stores of documents; of each the numbers of words of its rows, which count through the words of the store.
class SentenceOrders : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("funicular_sentence_order_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::shared_ptr<const data::TokenStore> store(const std::vector<std::vector<int>>& documents) {
    std::vector<data::MemorySource::Row> rows;
    int word = 0;
    for (const auto& sentences : documents)
      for (size_t i = 0; i < sentences.size(); ++i) {
        std::string text;
        for (int w = 0; w < sentences[i]; ++w) text += "w" + std::to_string(word++ % kWords) + " ";
        rows.push_back({{text}, "", i == 0});
      }
    const fs::path path = folder_ / ("s" + std::to_string(made_++) + ".tokens");
    data::build_token_store(tokenizer_, data::MemorySource(rows, 1, false), path);
    return data::TokenStore::open(path);
  }

  text::WordPiece tokenizer_ = number_words();
  fs::path folder_;
  int made_ = 0;
};

std::vector<int32_t> ids(const data::TokenSpan& tokens) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < tokens.size(); ++i) out.push_back(tokens[i]);
  return out;
}

std::vector<int32_t> joined(const SentenceOrder::Pair& pair) {
  std::vector<int32_t> all = ids(pair.sample.columns[pair.swapped].tokens);
  const std::vector<int32_t> second = ids(pair.sample.columns[!pair.swapped].tokens);
  all.insert(all.end(), second.begin(), second.end());
  return all;
}

data::Sample draw_of(const data::Dataset& dataset, int64_t index, int64_t draw) {
  data::Sample sample = dataset.get(index);
  sample.draw_id = draw;
  sample.epoch = draw / dataset.size();
  return sample;
}

TEST_F(SentenceOrders, PutTheTwoPartsOfAPieceInOneOrderOrTheOther) {
  const SentenceOrder objective(tokenizer_, {});
  const auto dataset = objective.samples(store({{3, 4, 5, 2}, {6, 6}}));
  std::vector<double> count(2);
  std::set<size_t> cuts;
  for (int64_t draw = 0; draw < 2000; ++draw) {
    const data::Sample sample = draw_of(*dataset, 0, draw);
    const SentenceOrder::Pair pair = objective.cut(sample, 1);
    ++count[pair.swapped ? 1 : 0];
    EXPECT_EQ(pair.label(), pair.swapped ? 1 : 0);
    cuts.insert(pair.sample.columns[pair.swapped].tokens.size());
    EXPECT_EQ(joined(pair), ids(sample.columns[0].tokens));
  }
  EXPECT_EQ(cuts, (std::set<size_t>{3, 7, 12}));
  expect_equal_shares("two parts in their order and swapped", count);
}

TEST_F(SentenceOrders, HaveTheLabelsOfAlbertOneWhereTheyAreSwapped) {
  const SentenceOrder objective(tokenizer_, {});
  const auto dataset = objective.samples(store({{3, 4, 5, 2}, {6, 6}}));
  for (int64_t draw = 0; draw < 50; ++draw) {
    const data::Sample sample = draw_of(*dataset, draw % 2, draw);
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample}, {1, true});
    EXPECT_EQ(batch["sentence_order_labels"].item<int64_t>(), objective.cut(sample, 1).swapped ? 1 : 0);
  }
}

TEST_F(SentenceOrders, SwappedTwiceAreAsTheyWere) {
  const SentenceOrder objective(tokenizer_, {});
  const auto dataset = objective.samples(store({{3, 4, 5}}));
  for (int64_t draw = 0; draw < 20; ++draw) {
    const SentenceOrder::Pair pair = objective.cut(draw_of(*dataset, 0, draw), 1),
                              other = SentenceOrder::swap(pair);
    EXPECT_NE(other.swapped, pair.swapped);
    EXPECT_EQ(ids(other.sample.columns[0].tokens), ids(pair.sample.columns[1].tokens));
    EXPECT_EQ(joined(other), joined(pair));
    const SentenceOrder::Pair again = SentenceOrder::swap(other);
    EXPECT_EQ(again.swapped, pair.swapped);
    for (const size_t column : {0, 1})
      EXPECT_EQ(ids(again.sample.columns[column].tokens), ids(pair.sample.columns[column].tokens));
  }
}

TEST_F(SentenceOrders, OfAPieceOfOneSentenceAreItsTwoPartsAndNeverAnotherDocument) {
  const SentenceOrder objective(tokenizer_, {});
  const auto dataset = objective.samples(store({{9}, {1}, {30}}));
  EXPECT_FALSE(objective.other_document_key(dataset->get(0)).has_value());
  for (int64_t draw = 0; draw < 200; ++draw) {
    const data::Sample sample = draw_of(*dataset, 0, draw);
    const SentenceOrder::Pair pair = objective.cut(sample, 1);
    EXPECT_EQ(joined(pair), ids(sample.columns[0].tokens));
    EXPECT_GT(pair.sample.columns[0].tokens.size(), 0);
    EXPECT_GT(pair.sample.columns[1].tokens.size(), 0);
  }
  const SentenceOrder::Pair single = objective.cut(draw_of(*dataset, 1, 5), 1);
  EXPECT_EQ(single.label(), -100);
  EXPECT_EQ(single.sample.columns.size(), 1u);
}

TEST_F(SentenceOrders, AreCountedOnlyWhereThereAreTwoParts) {
  const SentenceOrder objective(tokenizer_, {.sequence = {.max_length = 16}});
  const auto dataset = objective.samples(store({{9, 9, 9}, {30, 2}, {1}}));
  const train::DatasetSource source(objective, *dataset);
  std::vector<data::Draw> draws;
  for (int64_t i = 0; i < dataset->size(); ++i) draws.push_back({i, i});
  const MicroBatch batch = source.collate(draws, {.seed = 1});
  EXPECT_EQ(batch.counts.at("sentence_order"), static_cast<double>(draws.size() - 1));
  EXPECT_EQ(batch["sentence_order_labels"].eq(-100).sum().item<int64_t>(), 1);
  for (size_t s = 0; s < draws.size(); ++s) {
    const int64_t length = batch.packing.host_offsets[s + 1] - batch.packing.host_offsets[s];
    EXPECT_EQ(length, source.length(draws[s].sample_id));
    EXPECT_LE(length, 16);
  }
}

TEST_F(SentenceOrders, LossAtTheStartIsThatOfGuessing) {
  format::ModelConfig config;
  config.encoder.vocabulary = kWords + 5;
  config.encoder.width = 32;
  config.encoder.layers = 2;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 64;
  config.encoder.initializer_range = 1e-5;
  const SentenceOrder objective(tokenizer_, {});
  const Model model = objective.build({.config = config, .dtype = at::kDouble});
  const auto dataset = objective.samples(store({{9, 9, 9}, {30, 2}, {1}}));
  const train::DatasetSource source(objective, *dataset);
  for (const auto& [draws, expected] :
       std::map<int64_t, double>{{3, std::log(kWords + 5) + std::numbers::ln2}, {1, std::log(kWords + 5)}}) {
    std::vector<data::Draw> all;
    for (int64_t i = 3 - draws; i < 3; ++i) all.push_back({i, i});
    const MicroBatch batch = source.collate(all, {.seed = 1});
    LossSink sink;
    model.forward({}, batch, {}, sink);
    EXPECT_NEAR(sink.total(batch.counts).item<double>(), expected, 1e-3);
  }
}

TEST_F(SentenceOrders, EveryMaskingHidesTokensOfEveryObjective) {
  const auto text = store({{20, 20, 20}, {30, 2}, {1}, {12, 12}});
  for (const std::string& name : {std::string("mlm"), std::string("mlm-nsp"), std::string("mlm-sop")})
    for (const Masking masking : {Masking::token, Masking::whole_word, Masking::ngram, Masking::span}) {
      SCOPED_TRACE(name + ", " + masking_names()[static_cast<size_t>(masking)]);
      const auto objective = make_pretraining(name, tokenizer_, {.masking = masking});
      const auto dataset = objective->samples(text);
      const train::DatasetSource<Objective> source(*objective, *dataset);
      std::vector<data::Draw> draws;
      for (int64_t i = 0; i < dataset->size(); ++i) draws.push_back({i, i});
      const MicroBatch all = source.collate(draws, {.seed = 1});
      std::vector<at::Tensor> ids, labels;
      for (const data::Draw& draw : draws) {
        const MicroBatch one = source.collate(std::vector<data::Draw>{draw}, {.seed = 1});
        EXPECT_GE(one["mlm_labels"].numel(), 1);
        ids.push_back(one["token_ids"]);
        labels.push_back(one["mlm_labels"]);
      }
      EXPECT_TRUE(at::equal(all["token_ids"], at::cat(ids)))
          << "how a batch is cut must not change the masks";
      EXPECT_TRUE(at::equal(all["mlm_labels"], at::cat(labels)));
      EXPECT_EQ(all.counts.at("mlm"), static_cast<double>(all["mlm_labels"].numel()));
      EXPECT_NE(objective->identity(), make_pretraining(name, tokenizer_, {.probability = 0.3})->identity());
    }
}

TEST_F(SentenceOrders, WholeRowsFillASequenceWithSeparatorsBetweenDocuments) {
  const MaskedLm objective(tokenizer_, {.sequence = {.max_length = 14}, .pack = PackSentences::across});
  const auto dataset = objective.samples(store({{4, 3}, {4}, {2}}));
  const train::DatasetSource source(objective, *dataset);
  ASSERT_EQ(dataset->size(), 2);
  const MicroBatch batch = source.collate(std::vector<data::Draw>{{0, 0}, {1, 1}}, {.seed = 1});
  at::Tensor tokens = batch["token_ids"].clone();
  tokens.index_copy_(0, batch["mlm_rows"], batch["mlm_labels"]);
  const std::vector<int64_t> found(tokens.data_ptr<int64_t>(), tokens.data_ptr<int64_t>() + tokens.numel());
  EXPECT_EQ(found, (std::vector<int64_t>{2, 5, 6, 7, 8, 9, 10, 11, 3, 12, 13, 14, 15, 3, 2, 16, 17, 3}));
  EXPECT_EQ(source.length(0), 14);
  EXPECT_EQ(source.length(1), 4);
  EXPECT_THROW(make_pretraining("mlm-sop", tokenizer_, {.pack = PackSentences::within}), InputError);
  EXPECT_THROW(make_pretraining("mlm-nsp", tokenizer_, {.pack = PackSentences::within}), InputError);
}

}  // namespace
}  // namespace funicular::objective::sentence_order_tests
