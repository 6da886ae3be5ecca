// Claims about embedders: each text is a sequence of its own, and a step of parts is the step of the whole.
#include "funicular/objective/sentence_vectors.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "funicular/text/word_piece.h"

namespace funicular::objective {
namespace {

text::WordPiece small_tokenizer() {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (int i = 0; i < 95; ++i) vocabulary.push_back("w" + std::to_string(i));
  return text::WordPiece(vocabulary, {}, {});
}

/// Rows of texts over memory that it owns.
class TextRows {
 public:
  TextRows(int64_t rows, int64_t texts) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t text = 0; text < texts; ++text)
        for (int64_t i = 0; i < 2 + (row + text) % 4; ++i)
          tokens_[{row, text}].push_back(static_cast<uint16_t>(5 + (row * 31 + text * 17 + i * 7) % 95));
    for (int64_t row = 0; row < rows; ++row) {
      data::Sample& sample = samples.emplace_back();
      for (int64_t text = 0; text < texts; ++text) {
        const auto& own = tokens_.at({row, text});
        sample.columns.push_back({data::TokenSpan(own.data(), own.size()), {}});
      }
      sample.sample_id = row;
      sample.draw_id = 100 + row;
      sample.label = static_cast<double>(row % 3) / 2;
    }
  }
  std::vector<data::Sample> samples;

 private:
  std::map<std::pair<int64_t, int64_t>, std::vector<uint16_t>> tokens_;
};

TEST(SentenceVectors, EachTextIsASequenceWithDropoutOfItsOwn) {
  const auto tokenizer = small_tokenizer();
  const SentenceVectors objective(tokenizer, {});
  const TextRows rows(5, 3);
  const MicroBatch batch = objective.collate(rows.samples, {1, true});
  EXPECT_EQ(batch.packing.sequences(), 15);
  EXPECT_EQ(batch.counts.at("multiple-negatives"), 5);
  const std::vector<int64_t>& draws = batch.packing.host_draw_ids;
  EXPECT_EQ(std::set<int64_t>(draws.begin(), draws.end()).size(), 15u);
  EXPECT_EQ(draws[4], 3 * 101 + 1);
  EXPECT_EQ(batch[kRowDraws][4].item<int64_t>(), 104);
  int64_t tokens = 0;
  for (const data::Sample& sample : rows.samples) tokens += objective.length(sample);
  EXPECT_EQ(batch.packing.tokens(), tokens);
  EXPECT_FALSE(batch.tensors.contains(kPresentTexts)) << "no row may lack a text";
  EXPECT_FALSE(batch.tensors.contains(kRowLabels));
}

TEST(SentenceVectors, MissingNegativesAreTold) {
  const auto tokenizer = small_tokenizer();
  const SentenceVectors objective(tokenizer, {});
  TextRows rows(2, 4);
  rows.samples[1].columns[3].tokens = {};
  const at::Tensor present = objective.collate(rows.samples, {1, true})[kPresentTexts];
  EXPECT_EQ(present.sum().item<double>(), 7);
  EXPECT_EQ(present[1][3].item<double>(), 0);
  EXPECT_EQ(objective.texts_of(rows.samples[1]).size(), 3u);
}

TEST(SentenceVectors, EachNegativeHasItsMargin) {
  const auto tokenizer = small_tokenizer();
  const SentenceVectors objective(tokenizer, {.sequence = {}, .loss = {.loss = VectorLoss::margin_mse}});
  TextRows rows(2, 4);
  const std::vector<double> margins{0.25, -1, 3, 0};
  for (size_t row = 0; row < 2; ++row)
    rows.samples[row].shares = std::span<const double>(margins).subspan(2 * row, 2);
  rows.samples[1].columns[3].tokens = {};
  const MicroBatch batch = objective.collate(rows.samples, {1, true});
  ASSERT_TRUE(batch[kRowLabels].equal(at::tensor(margins, at::kDouble).view({2, 2})));
  // Vectors of one number: the positive leads by 1 and 1.5, and by -2 over the only negative of the second row.
  const at::Tensor vectors =
      at::tensor({1.0, 2.0, 1.0, 0.5, 1.0, 2.0, 4.0, 9.0}, at::kDouble).view({2, 4, 1});
  const at::Tensor losses = objective.loss()->of_rows(
      {{kRowVectors, vectors}, {kRowLabels, batch[kRowLabels]}, {kPresentTexts, batch[kPresentTexts]}});
  EXPECT_DOUBLE_EQ(losses[0].item<double>(), (0.75 * 0.75 + 2.5 * 2.5) / 2);
  EXPECT_DOUBLE_EQ(losses[1].item<double>(), 25);
}

TEST(SentenceVectors, EqualTextsHaveEqualHashes) {
  const auto tokenizer = small_tokenizer();
  const SentenceVectors objective(tokenizer, {});
  TextRows rows(2, 2);
  rows.samples[1].columns[1] = rows.samples[0].columns[0];
  EXPECT_EQ(objective.texts_of(rows.samples[1])[1], objective.texts_of(rows.samples[0])[0]);
  EXPECT_NE(objective.texts_of(rows.samples[1])[0], objective.texts_of(rows.samples[0])[0]);
}

class OfAModel : public ::testing::Test {
 protected:
  Model make(const SentenceVectors& objective) {
    format::ModelConfig config;
    config.encoder.vocabulary = 100;
    config.encoder.width = 32;
    config.encoder.layers = 1;
    config.encoder.heads = 2;
    config.encoder.feed_forward.width = 32;
    config.encoder.positions.rows = 32;
    return objective.build({.config = config, .dtype = at::kDouble, .seed = 3});
  }
  const text::WordPiece tokenizer = small_tokenizer();
  const SentenceVectorOptions options{.sequence = {},
                                      .loss = {.comparison = Comparison::joint, .hardness = 5}};
  const SentenceVectors objective{tokenizer, options};
  const TextRows rows{6, 3};
};

TEST_F(OfAModel, AnEvaluationGivesVectorsAndLeavesTheComparisonToMetrics) {
  const Model model = make(objective);
  LossSink sink;
  sink.keep_outputs = true;
  model.forward({}, objective.collate(rows.samples, {1, false}), {}, sink);
  EXPECT_TRUE(sink.terms().empty());
  EXPECT_EQ(sink.outputs().at(kRowVectors).sizes().vec(), (std::vector<int64_t>{6, 3, 32}));
  EXPECT_EQ(sink.outputs().at(kRowDraws).numel(), 6);
}

/// What the trainer does, by hand: dropout is on.
TEST_F(OfAModel, ThePartsOfABatchWithGivenGradientsAddUpToTheWholeBatch) {
  const Model model = make(objective);
  const RandomState random{1, true};
  const auto loss_of = [&](const MicroBatch& batch) {
    LossSink sink;
    model.forward({}, batch, {}, sink);
    return sink.terms().at(0).sum;
  };
  const auto gradients = [&] {
    std::vector<at::Tensor> all;
    for (const auto& parameter : model.parameters)
      if (parameter->trainable) {
        all.push_back(parameter->compute.grad().clone());
        parameter->compute.mutable_grad().zero_();
      }
    return all;
  };
  const at::Tensor whole = loss_of(objective.collate(rows.samples, random));
  whole.backward();
  const std::vector<at::Tensor> expected = gradients();
  std::vector<MicroBatch> parts;
  std::vector<at::Tensor> vectors;
  const std::span<const data::Sample> all(rows.samples);
  for (size_t begin = 0; begin < 6; begin += 2) {
    parts.push_back(objective.collate(all.subspan(begin, 2), random));
    const at::NoGradGuard no_gradient;
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, parts.back(), {}, sink);
    vectors.push_back(sink.outputs().at(kRowVectors));
  }
  const BatchLoss::Result result =
      objective.batch_loss()->compute({{kRowVectors, at::cat(vectors)}}, 0, 6, true);
  double sum = 0;
  for (size_t part = 0; part < 3; ++part) {
    const auto begin = static_cast<int64_t>(2 * part);
    parts[part].tensors[kVectorGradients] = result.gradients.slice(0, begin, begin + 2);
    parts[part].tensors[kRowLosses] = result.values.slice(0, begin, begin + 2);
    const at::Tensor loss = loss_of(parts[part]);
    sum += loss.item<double>();
    loss.backward();
  }
  EXPECT_NEAR(sum, whole.item<double>(), 1e-12);
  const std::vector<at::Tensor> found = gradients();
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(),
              1e-13 + 1e-11 * expected[i].abs().max().item<double>())
        << i;
}

}  // namespace
}  // namespace funicular::objective
