#include "funicular/eval/predictor.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/core/precision.h"
#include "funicular/model/encoder.h"
#include "funicular/text/word_piece.h"

namespace funicular::eval {
namespace {

text::WordPiece small_tokenizer() {
  std::vector<std::string> vocabulary{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary.emplace_back(1, letter);
  return text::WordPiece(vocabulary, {}, {});
}

format::ModelConfig config(int labels) {
  format::ModelConfig config;
  config.encoder.vocabulary = 31;
  config.encoder.width = 16;
  config.encoder.layers = 2;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 24;
  config.encoder.positions.rows = 32;
  config.encoder.initializer_range = 0.5;
  config.num_labels = labels;
  for (int i = 0; i < labels; ++i) config.id2label.push_back("label " + std::to_string(i));
  return config;
}

/// Texts of 0 to 40 letters: longer ones than the model can take, and empty ones.
std::vector<TextRow> rows(size_t count) {
  std::vector<TextRow> result(count);
  for (size_t i = 0; i < count; ++i)
    for (size_t column = 0; column < 2; ++column)
      for (size_t word = 0; word < (i * 7 + column * 3) % 41; ++word)
        result[i][column] += std::string(1, static_cast<char>('a' + (i * 31 + word * 5 + column) % 26)) + " ";
  return result;
}

class PredictorTest : public testing::Test {
 protected:
  PredictorOptions options(int64_t tokens, int64_t window = 1024) const {
    return {.sequence = {.max_length = 32}, .batch_tokens = tokens, .window = window};
  }
  Predictor predictor(PredictorOptions options) const {
    return Predictor(model_, tokenizer_, config_.id2label, options);
  }

  format::ModelConfig config_ = config(3);
  text::WordPiece tokenizer_ = small_tokenizer();
  Model model_ = model::build_model({config_, model::Head::classification});
};

TEST_F(PredictorTest, BatchesDoNotChangeWhatARowGives) {
  const auto texts = rows(60);
  for (const int columns : {1, 2}) {
    const Predictor one_by_one = predictor(options(1));
    for (const int64_t tokens : {50, 300, 100000}) {
      const auto together = predictor(options(tokens)).predict(texts, columns);
      ASSERT_EQ(together.size(), texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        const Prediction alone = one_by_one.predict(std::span(&texts[i], 1), columns).front();
        EXPECT_EQ(together[i].label, alone.label);
        for (size_t label = 0; label < 3; ++label)
          EXPECT_NEAR(together[i].probabilities[label], alone.probabilities[label], 1e-5);
      }
    }
  }
}

TEST_F(PredictorTest, ABatchHoldsAsManyRowsAsItsTokensAllow) {
  std::vector<int64_t> sizes;
  const auto forward = model_.segments.front().forward;
  model_.segments.front().forward = [&](Activations in, const Pass& pass) {
    sizes.push_back(pass.batch.packing.tokens());
    return forward(std::move(in), pass);
  };
  const auto texts = rows(60);
  predictor(options(70)).predict(texts, 1);
  EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), 70);
  const auto all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  // Of rows of at most 32 tokens no batch but the last one leaves room for another.
  EXPECT_LE(static_cast<int64_t>(sizes.size()), all / (70 - 32) + 1);
  sizes.clear();
  predictor(options(1)).predict(texts, 1);
  EXPECT_EQ(sizes.size(), texts.size()) << "a row that is too long for a batch has one of its own";
}

TEST_F(PredictorTest, ProbabilitiesSumToOneAndTheLabelIsTheMostProbable) {
  for (const Prediction& prediction : predictor(options(100)).predict(rows(20), 1)) {
    float sum = 0;
    for (const float probability : prediction.probabilities) {
      sum += probability;
      EXPECT_LE(probability, prediction.score);
    }
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_EQ(prediction.probabilities[static_cast<size_t>(prediction.label)], prediction.score);
  }
}

TEST_F(PredictorTest, TheSecondTextOfAPairMatters) {
  const std::vector<TextRow> pairs{{"a b", "c"}, {"a b", "d"}};
  const auto found = predictor(options(100)).predict(pairs, 2);
  EXPECT_NE(found[0].score, found[1].score);
}

TEST_F(PredictorTest, NamesAreEscapedInJson) {
  auto labels = config_.id2label;
  labels[1] = "quote\" and\nline";
  const Predictor named(model_, tokenizer_, labels, options(100));
  const Json json = Json::parse(named.to_json({1, 0.75f, {0.125f, 0.75f, 0.125f}}));
  EXPECT_EQ(json["label"], labels[1]);
  EXPECT_EQ(json["score"], 0.75);
  EXPECT_EQ(json["probabilities"][labels[1]], 0.75);
}

TEST_F(PredictorTest, AStreamGivesALineForEachRowInOrder) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::string text;
  const auto texts = rows(25);
  for (const TextRow& row : texts) text += row[0] + "\n";
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(ends[1]);

  const Predictor windows_of_four = predictor(options(100, 4));
  format::TextOptions layout;
  layout.keep_blank_lines = true;
  format::StreamRowReader reader(ends[0], "pipe", layout);
  std::string lines;
  int calls = 0;
  const auto done =
      windows_of_four.stream(reader, 1, "pipe", [&](std::string_view part) { lines += part, ++calls; });
  EXPECT_EQ(done.rows, 25);
  const auto long_rows = std::count_if(texts.begin(), texts.end(), [](const TextRow& row) {
    return std::count(row[0].begin(), row[0].end(), ' ') + 2 > 32;  // [CLS] and [SEP]
  });
  EXPECT_EQ(done.cut.cut, long_rows);
  EXPECT_GT(done.cut.cut, 0);
  EXPECT_LT(done.cut.cut, done.rows);
  ::close(ends[0]);
  EXPECT_EQ(calls, 7) << "windows of four";
  std::istringstream found(lines);
  std::string line;
  for (const Prediction& prediction : predictor(options(100)).predict(texts, 1)) {
    ASSERT_TRUE(std::getline(found, line));
    const Json json = Json::parse(line);
    EXPECT_EQ(json["label"], config_.id2label[static_cast<size_t>(prediction.label)]);
    EXPECT_NEAR(json["score"].get<double>(), prediction.score, 1e-5);
  }
  EXPECT_FALSE(std::getline(found, line));
}

/// A stream of lines; its bytes wait in the pipe.
class Lines {
 public:
  explicit Lines(const std::string& text) {
    EXPECT_EQ(::pipe(ends_), 0);
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(ends_[1]);
    format::TextOptions layout;
    layout.keep_blank_lines = true;
    rows.emplace(ends_[0], "pipe", layout);
  }
  ~Lines() { ::close(ends_[0]); }
  std::optional<format::StreamRowReader> rows;

 private:
  int ends_[2] = {-1, -1};
};

TEST_F(PredictorTest, ProcessesThatShareTheRowsGiveTheLinesOfOneAndEachAnswersItsOwn) {
  std::string text;
  for (const TextRow& row : rows(23)) text += row[0] + "\n";
  std::string expected;
  Lines alone(text);
  const auto whole =
      predictor(options(1)).stream(*alone.rows, 1, "pipe", [&](std::string_view part) { expected += part; });
  for (const int ranks : {2, 3}) {
    for (const int64_t window : {1, 4, 100}) {
      std::vector<std::string> given(static_cast<size_t>(ranks)), written = given;
      std::vector<size_t> answered(given.size());
      std::vector<Predictor::Streamed> done(given.size());
      std::barrier<> meeting(ranks);
      std::vector<std::jthread> processes;
      for (int rank = 0; rank < ranks; ++rank)
        processes.emplace_back([&, rank] {
          const auto at = static_cast<size_t>(rank);
          Lines lines(text);
          const auto exchange = [&](const std::function<std::string()>& make) {
            given[at] = make();
            answered[at] += static_cast<size_t>(std::count(given[at].begin(), given[at].end(), '\n'));
            meeting.arrive_and_wait();
            const std::vector<std::string> all = given;
            meeting.arrive_and_wait();
            return all;
          };
          done[at] = predictor(options(1, window))
                         .stream(*lines.rows, 1, "pipe", [&](std::string_view part) { written[at] += part; },
                                 {rank, ranks, exchange});
        });
      processes.clear();  // joins
      for (size_t rank = 0; rank < given.size(); ++rank) {
        EXPECT_EQ(written[rank], expected) << ranks << " " << window;
        EXPECT_EQ(answered[rank], (23 + given.size() - 1 - rank) / given.size()) << rank;
        EXPECT_EQ(done[rank].rows, 23);
        EXPECT_EQ(done[rank].cut.cut, whole.cut.cut);
      }
    }
  }
}

TEST_F(PredictorTest, AnErrorDoesNotWaitForRowsThatAreStillToCome) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "a b\n", 4), 4);
  model_.find("classifier.bias")->master.detach()[1] = std::numeric_limits<float>::quiet_NaN();
  format::StreamRowReader reader(ends[0], "pipe", {});
  EXPECT_THROW(predictor(options(100, 1)).stream(reader, 1, "pipe", [](std::string_view) {}), RunError);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(PredictorTest, HalfPrecisionAnswersAlikeInHalfTheMemory) {
  const auto texts = rows(30);
  const auto exact = predictor(options(100)).predict(texts, 1);
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    Model model = model::build_model({config_, model::Head::classification});
    make_inference(model, precision);
    for (const auto& parameter : model.parameters) {
      EXPECT_TRUE(parameter->master.is_same(parameter->compute)) << parameter->name;
      EXPECT_FALSE(parameter->compute.requires_grad()) << parameter->name;
      EXPECT_EQ(parameter->compute.scalar_type(),
                parameter->kind == ParameterKind::matrix ? *compute_type(precision) : at::kFloat)
          << parameter->name;
    }
    const auto halved = Predictor(model, tokenizer_, config_.id2label, options(100)).predict(texts, 1);
    for (size_t i = 0; i < texts.size(); ++i)
      for (size_t label = 0; label < 3; ++label)
        EXPECT_NEAR(halved[i].probabilities[label], exact[i].probabilities[label], 0.05);
  }
  Model wrapped;
  EXPECT_THROW(make_inference(wrapped, Precision::bf16), InputError);
}

TEST_F(PredictorTest, ADamagedModelIsAnError) {
  model_.find("classifier.bias")->master.detach()[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(predictor(options(100)).predict(rows(2), 1), RunError);
}

TEST_F(PredictorTest, LabelsOfAnotherNumberAreRefused) {
  const Predictor wrong(model_, tokenizer_, {"yes", "no"}, options(100));
  EXPECT_THROW(wrong.predict(rows(2), 1), InputError);
}

TEST_F(PredictorTest, NoRowsGiveNothing) {
  EXPECT_TRUE(predictor(options(100)).predict({}, 1).empty());
}

}  // namespace
}  // namespace funicular::eval
