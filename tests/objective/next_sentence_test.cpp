#include "funicular/objective/next_sentence.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "funicular/data/datasets.h"
#include "funicular/data/other_document.h"
#include "funicular/data/token_store_builder.h"
#include "funicular/objective/registry.h"
#include "funicular/text/word_piece.h"
#include "funicular/train/source.h"
#include "views.h"

namespace funicular::objective {
namespace {

constexpr int kWords = 300;

text::WordPiece number_words() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < kWords; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

/// A store of documents; of each the words of its rows, which number the words of the whole store.
class NextSentences : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("funicular_next_sentence_" + std::to_string(::getpid()));
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

data::Sample draw_of(const data::Dataset& dataset, int64_t index, int64_t draw) {
  data::Sample sample = dataset.get(index);
  sample.draw_id = draw;
  sample.epoch = draw / dataset.size();
  sample.other = data::draw_other_document(dataset, index, static_cast<uint64_t>(draw), 1);
  return sample;
}

TEST_F(NextSentences, AreCutWhereARowBeginsAndJoinAgainToThePiece) {
  const NextSentence objective(tokenizer_, {});
  const auto dataset = objective.samples(store({{3, 4, 5, 2}, {6, 6}}));
  std::set<size_t> cuts;
  for (int64_t draw = 0; draw < 200; ++draw) {
    const data::Sample sample = draw_of(*dataset, 0, draw);
    const NextSentence::Pair pair = objective.cut(sample, 1);
    cuts.insert(pair.sample.columns[0].tokens.size());
    if (!pair.follows) continue;
    std::vector<int32_t> joined = ids(pair.sample.columns[0].tokens);
    const std::vector<int32_t> second = ids(pair.sample.columns[1].tokens);
    joined.insert(joined.end(), second.begin(), second.end());
    EXPECT_EQ(joined, ids(sample.columns[0].tokens));
  }
  EXPECT_EQ(cuts, (std::set<size_t>{3, 7, 12}));
}

TEST_F(NextSentences, OfALongRowAreCutAtAWord) {
  const NextSentence objective(tokenizer_, {.sequence = {.max_length = 20}});
  const auto dataset = objective.samples(store({{40}, {40}}));
  std::set<size_t> cuts;
  for (int64_t draw = 0; draw < 200; ++draw) {
    const NextSentence::Pair pair = objective.cut(draw_of(*dataset, 1, draw), 1);
    EXPECT_GT(pair.sample.columns[1].tokens.size(), 0);
    cuts.insert(pair.sample.columns[0].tokens.size());
  }
  EXPECT_GT(cuts.size(), 8);
  EXPECT_GT(*cuts.begin(), 0);
}

TEST_F(NextSentences, AreOfAnotherDocumentInHalfOfTheDrawsAndNoLongerThanWhatFollows) {
  const NextSentence objective(tokenizer_, {});
  const auto dataset = objective.samples(store({{5, 5}, {20, 20}, {2}}));
  std::vector<double> count(2);
  for (int64_t draw = 0; draw < 2000; ++draw) {
    const data::Sample sample = draw_of(*dataset, draw % 3, draw);
    const NextSentence::Pair pair = objective.cut(sample, 1);
    ++count[pair.follows ? 0 : 1];
    if (pair.follows) continue;
    const std::vector<int32_t> own = ids(sample.columns[0].tokens),
                               second = ids(pair.sample.columns[1].tokens);
    EXPECT_LE(pair.sample.columns[0].tokens.size() + second.size(), own.size());
    for (const int32_t token : second)
      EXPECT_EQ(std::find(own.begin(), own.end(), token), own.end()) << "of the same document";
  }
  expect_equal_shares("the next part and another document's", count);
}

TEST_F(NextSentences, HaveTheLabelsOfBertZeroWhereTheSecondFollows) {
  const NextSentence objective(tokenizer_, {});
  const auto dataset = objective.samples(store({{5, 5}, {20, 20}}));
  for (int64_t draw = 0; draw < 50; ++draw) {
    const data::Sample sample = draw_of(*dataset, draw % 2, draw);
    const MicroBatch batch = objective.collate(std::vector<data::Sample>{sample}, {1, true});
    EXPECT_EQ(batch["next_sentence_labels"].item<int64_t>(), objective.cut(sample, 1).follows ? 0 : 1);
  }
}

TEST_F(NextSentences, FindTheOtherDocumentHoweverSmallItIs) {
  const NextSentence objective(tokenizer_, {.sequence = {.max_length = 8}});
  const auto dataset = objective.samples(store({{2}, std::vector<int>(500, 5), {3}}));
  ASSERT_GT(dataset->size(), 400);
  EXPECT_TRUE(data::has_several_documents(*dataset));
  std::map<size_t, int> drawn;
  for (int64_t draw = 0; draw < 400; ++draw) ++drawn[draw_of(*dataset, 1 + draw, draw).other.tokens.size()];
  EXPECT_EQ(drawn.size(), 2u);
  EXPECT_NEAR(drawn[2], 200, 50) << "of the two pieces of other documents each as often";
  EXPECT_NEAR(drawn[3], 200, 50);
}

TEST_F(NextSentences, FollowWhereThereIsNoOtherDocument) {
  const NextSentence objective(tokenizer_, {});
  const auto dataset = objective.samples(store({{5, 5}}));
  EXPECT_FALSE(data::has_several_documents(*dataset));
  for (int64_t draw = 0; draw < 50; ++draw) EXPECT_TRUE(objective.cut(draw_of(*dataset, 0, draw), 1).follows);
}

TEST_F(NextSentences, NeverReadAHeldOutDocument) {
  std::vector<std::vector<int>> documents(12, std::vector<int>{6, 6});
  const NextSentence objective(tokenizer_, {});
  const auto split = data::split_dataset(objective.samples(store(documents)), 0.5, 3);
  std::set<int32_t> held_out;
  for (int64_t i = 0; i < split.held_out->size(); ++i)
    for (const int32_t token : ids(split.held_out->get(i).columns[0].tokens)) held_out.insert(token);
  const train::DatasetSource source(objective, *split.train);
  for (int64_t draw = 0; draw < 300; ++draw) {
    const std::vector<data::Draw> draws{{draw % split.train->size(), draw}};
    const MicroBatch batch = source.collate(draws, {.seed = 1});
    // Masked places may show any word: what stood there is in the labels.
    at::Tensor tokens = batch["token_ids"].clone();
    tokens.index_copy_(0, batch["mlm_rows"], batch["mlm_labels"]);
    for (int64_t i = 0; i < tokens.numel(); ++i)
      EXPECT_FALSE(held_out.contains(static_cast<int32_t>(tokens[i].item<int64_t>())));
  }
}

TEST_F(NextSentences, BatchHasBothSegmentsAndFitsTheLength) {
  const NextSentence objective(tokenizer_, {.sequence = {.max_length = 16}});
  const auto dataset = objective.samples(store({{9, 9, 9}, {30, 2}, {1}}));
  const train::DatasetSource source(objective, *dataset);
  std::vector<data::Draw> draws;
  for (int64_t i = 0; i < dataset->size(); ++i) draws.push_back({i, i});
  const MicroBatch batch = source.collate(draws, {.seed = 1});
  EXPECT_EQ(batch.counts.at("next_sentence"), static_cast<double>(draws.size()));
  EXPECT_EQ(batch["next_sentence_labels"].numel(), static_cast<int64_t>(draws.size()));
  for (size_t s = 0; s < draws.size(); ++s) {
    const int64_t begin = batch.packing.host_offsets[s], end = batch.packing.host_offsets[s + 1];
    EXPECT_LE(end - begin, std::min<int64_t>(16, source.length(draws[s].sample_id)));
    const at::Tensor tokens = batch["token_ids"].slice(0, begin, end);
    EXPECT_EQ(tokens[0].item<int64_t>(), tokenizer_.special().cls);
    EXPECT_EQ(tokens.eq(tokenizer_.special().sep).sum().item<int64_t>(), 2);
  }
}

TEST_F(NextSentences, StaticMasksComeAgainEveryNEpochsAndOthersDoNot) {
  const auto tokens_at = [&](const Objective& objective, const data::Dataset& dataset, int64_t epoch) {
    const train::DatasetSource source(objective, dataset);
    const std::vector<data::Draw> draws{{0, epoch * dataset.size()}};
    return source.collate(draws, {.seed = 1})["token_ids"];
  };
  const auto text = store({{20, 20, 20}, {20, 20, 20}});
  for (const std::string& name : pretraining_names()) {
    const auto fixed = make_pretraining(name, tokenizer_, {.static_masks = 3});
    const auto fresh = make_pretraining(name, tokenizer_, {});
    const auto dataset = fixed->samples(text);
    EXPECT_TRUE(at::equal(tokens_at(*fixed, *dataset, 0), tokens_at(*fixed, *dataset, 3)));
    EXPECT_TRUE(at::equal(tokens_at(*fixed, *dataset, 1), tokens_at(*fixed, *dataset, 4)));
    EXPECT_FALSE(at::equal(tokens_at(*fixed, *dataset, 0), tokens_at(*fixed, *dataset, 1)));
    EXPECT_FALSE(at::equal(tokens_at(*fresh, *dataset, 0), tokens_at(*fresh, *dataset, 3)));
    EXPECT_NE(fixed->identity(), fresh->identity());
  }
}

TEST_F(NextSentences, LossAtTheStartIsThatOfGuessing) {
  format::ModelConfig config;
  config.encoder.vocabulary = kWords + 5;
  config.encoder.width = 32;
  config.encoder.layers = 2;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 64;
  config.encoder.initializer_range = 1e-3;
  const NextSentence objective(tokenizer_, {});
  const Model model = objective.build({.config = config, .dtype = at::kDouble});
  const auto dataset = objective.samples(store({{9, 9, 9}, {30, 2}, {5, 6, 7, 8}}));
  const train::DatasetSource source(objective, *dataset);
  const MicroBatch batch = source.collate(std::vector<data::Draw>{{0, 0}, {1, 1}, {2, 2}}, {.seed = 1});
  LossSink sink;
  model.forward({}, batch, {}, sink);
  EXPECT_NEAR(sink.total(batch.counts).item<double>(), std::log(kWords + 5) + std::numbers::ln2, 1e-3);
}

}  // namespace
}  // namespace funicular::objective
