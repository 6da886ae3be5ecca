#include "funicular/task/predictor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/core/precision.h"
#include "funicular/model/encoder.h"
#include "funicular/task/registry.h"
#include "funicular/text/word_piece.h"

namespace funicular::task::predictor_tests {
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
std::vector<InputRow> rows(size_t count, size_t columns = 1) {
  std::vector<InputRow> result(count);
  for (size_t i = 0; i < count; ++i) {
    result[i].texts.resize(columns);
    for (size_t column = 0; column < columns; ++column)
      for (size_t word = 0; word < (i * 7 + column * 3) % 41; ++word)
        result[i].texts[column] +=
            std::string(1, static_cast<char>('a' + (i * 31 + word * 5 + column) % 26)) + " ";
  }
  return result;
}

std::string lines_of(const std::vector<InputRow>& rows) {
  std::string text;
  for (const InputRow& row : rows) text += row.texts[0] + "\n";
  return text;
}

class PredictorTest : public testing::Test {
 protected:
  PredictorOptions options(int64_t tokens, int64_t window = 1024) const {
    return {.sequence = {.max_length = 32}, .batch_tokens = tokens, .window = window};
  }
  Predictor predictor(PredictorOptions options) const { return predictor(model_, config_.id2label, options); }
  Predictor predictor(const Model& model, const std::vector<std::string>& labels,
                      PredictorOptions options) const {
    const auto task = find_task("classes");
    return Predictor(model, tokenizer_,
                     task->objective(tokenizer_, config_, {.sequence = options.sequence, .labelled = false}),
                     task->answers(labels, Json::object()), options);
  }

  format::ModelConfig config_ = config(3);
  text::WordPiece tokenizer_ = small_tokenizer();
  Model model_ = model::build_model({config_, model::Head::classification});
};

TEST_F(PredictorTest, BatchesDoNotChangeWhatARowGives) {
  for (const size_t columns : {size_t{1}, size_t{2}}) {
    const auto texts = rows(60, columns);
    const Predictor one_by_one = predictor(options(1));
    for (const int64_t tokens : {50, 300, 100000}) {
      const auto together = predictor(options(tokens)).answer(texts);
      ASSERT_EQ(together.size(), texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        const Answer alone = one_by_one.answer({texts[i]}).front();
        EXPECT_EQ(together[i].labels, alone.labels);
        for (size_t label = 0; label < 3; ++label)
          EXPECT_NEAR(together[i].scores[label], alone.scores[label], 1e-5);
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
  predictor(options(70)).answer(texts);
  EXPECT_LE(*std::max_element(sizes.begin(), sizes.end()), 70);
  const auto all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  // Of rows of at most 32 tokens no batch but the last one leaves room for another.
  EXPECT_LE(static_cast<int64_t>(sizes.size()), all / (70 - 32) + 1);
  sizes.clear();
  predictor(options(1)).answer(texts);
  EXPECT_EQ(sizes.size(), texts.size()) << "a row that is too long for a batch has one of its own";
}

TEST_F(PredictorTest, ProbabilitiesSumToOneAndTheLabelIsTheMostProbable) {
  for (const Answer& answer : predictor(options(100)).answer(rows(20))) {
    ASSERT_EQ(answer.labels.size(), 1u);
    const float best = answer.scores[static_cast<size_t>(answer.labels[0])];
    float sum = 0;
    for (const float probability : answer.scores) {
      sum += probability;
      EXPECT_LE(probability, best);
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST_F(PredictorTest, TheSecondTextOfAPairMatters) {
  const auto found = predictor(options(100)).answer({{{"a b", "c"}}, {{"a b", "d"}}});
  EXPECT_NE(found[0].scores, found[1].scores);
}

TEST_F(PredictorTest, NamesAreEscapedInJson) {
  auto labels = config_.id2label;
  labels[1] = "quote\" and\nline";
  const Predictor named = predictor(model_, labels, options(100));
  const Answer answer = named.answers().answer({}, std::vector<SampleScores>{{3, {0.125F, 0.75F, 0.125F}}});
  const Json json = Json::parse(answer.json);
  EXPECT_EQ(json["label"], labels[1]);
  EXPECT_EQ(json["score"], 0.75);
  EXPECT_EQ(json["probabilities"][labels[1]], 0.75);
}

/// Lines that wait in a pipe. `open`: its end does not come.
class Lines {
 public:
  explicit Lines(const std::string& text, bool open = false) {
    EXPECT_EQ(::pipe(ends_), 0);
    EXPECT_EQ(::write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    format::TextOptions layout;
    layout.format = format::TextFormat::lines;
    layout.keep_blank_lines = true;
    rows = std::make_unique<TextInput>(fmt::format("/dev/fd/{}", ends_[0]), layout, 1);
    if (!open) close(1);
  }
  ~Lines() {
    close(0);
    close(1);
  }
  std::unique_ptr<RowInput> rows;

 private:
  void close(int end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }
  int ends_[2] = {-1, -1};
};

TEST_F(PredictorTest, AStreamGivesALineForEachRowInOrder) {
  const auto texts = rows(25);
  const Predictor windows_of_four = predictor(options(100, 4));
  Lines input(lines_of(texts));
  std::string lines;
  int calls = 0;
  const StreamCounts done =
      windows_of_four.stream(*input.rows, [&](std::string_view part) { lines += part, ++calls; });
  EXPECT_EQ(done.rows, 25);
  const auto long_rows = std::count_if(texts.begin(), texts.end(), [](const InputRow& row) {
    return std::count(row.texts[0].begin(), row.texts[0].end(), ' ') + 2 > 32;  // [CLS] and [SEP]
  });
  EXPECT_EQ(done.cut.cut, long_rows);
  EXPECT_GT(done.cut.cut, 0);
  EXPECT_LT(done.cut.cut, done.rows);
  EXPECT_EQ(done.textless.count, 1);
  EXPECT_EQ(done.textless.first_line, 1);
  EXPECT_EQ(calls, 7) << "windows of four";
  std::istringstream found(lines);
  std::string line;
  for (const Answer& answer : predictor(options(100)).answer(texts)) {
    ASSERT_TRUE(std::getline(found, line));
    const Json json = Json::parse(line);
    EXPECT_EQ(json["label"], config_.id2label[static_cast<size_t>(answer.labels[0])]);
    EXPECT_NEAR(json["score"].get<double>(), answer.scores[static_cast<size_t>(answer.labels[0])], 1e-5);
  }
  EXPECT_FALSE(std::getline(found, line));
}

TEST_F(PredictorTest, RanksThatShareTheRowsGiveTheLinesOfOneAndEachAnswersItsOwn) {
  const std::string text = lines_of(rows(23));
  std::string expected;
  Lines alone(text);
  const auto whole =
      predictor(options(1)).stream(*alone.rows, [&](std::string_view part) { expected += part; });
  for (const int ranks : {2, 3}) {
    for (const int64_t window : {1, 4, 100}) {
      std::vector<std::string> given(static_cast<size_t>(ranks)), written = given;
      std::vector<size_t> answered(given.size());
      std::vector<StreamCounts> done(given.size());
      std::barrier<> meeting(ranks);
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
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
                         .stream(*lines.rows, [&](std::string_view part) { written[at] += part; },
                                 {rank, ranks, exchange});
        });
      threads.clear();  // joins
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
  model_.find("classifier.bias")->master.detach()[1] = std::numeric_limits<float>::quiet_NaN();
  Lines input("a b\n", /*open=*/true);
  EXPECT_THROW(predictor(options(100, 1)).stream(*input.rows, [](std::string_view) {}), RunError);
}

TEST_F(PredictorTest, HalfPrecisionAnswersAlikeInHalfTheMemory) {
  const auto texts = rows(30);
  const auto exact = predictor(options(100)).answer(texts);
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
    const auto halved = predictor(model, config_.id2label, options(100)).answer(texts);
    for (size_t i = 0; i < texts.size(); ++i)
      for (size_t label = 0; label < 3; ++label)
        EXPECT_NEAR(halved[i].scores[label], exact[i].scores[label], 0.05);
  }
  Model wrapped;
  EXPECT_THROW(make_inference(wrapped, Precision::bf16), InputError);
}

TEST_F(PredictorTest, ADamagedModelIsAnError) {
  model_.find("classifier.bias")->master.detach()[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(predictor(options(100)).answer(rows(2)), RunError);
}

TEST_F(PredictorTest, LabelsOfAnotherNumberAreRefused) {
  const Predictor wrong = predictor(model_, {"yes", "no"}, options(100));
  EXPECT_THROW(wrong.answer(rows(2)), InputError);
}

TEST_F(PredictorTest, NoRowsGiveNothing) {
  EXPECT_TRUE(predictor(options(100)).answer(std::vector<InputRow>()).empty());
}

}  // namespace
}  // namespace funicular::task::predictor_tests
