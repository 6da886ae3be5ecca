// Prediction and evaluation on a stand-in of a card: what waits, and what the rows get.

#include "funicular/task/predictor.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/core/metrics.h"
#include "funicular/data/sample.h"
#include "funicular/model/encoder.h"
#include "funicular/model/pooling.h"
#include "funicular/task/registry.h"
#include "funicular/text/word_piece.h"
#include "funicular/train/evaluation.h"
#include "funicular/train/source.h"
#include "stand_in.h"

namespace funicular::card {
namespace {

constexpr int kRows = 40, kWindow = 16, kPassTokens = 40;  // a window has several passes
const std::vector<std::string> kLabels{"no", "yes"};

/// The answers of the task "classes". Notes for each pass how often the host had waited when the pass was queued, and the
/// threads that write answers.
class NotedAnswers final : public task::Answers {
 public:
  struct Notes {
    std::vector<size_t> waits_before_pass;
    std::vector<std::thread::id> passes, writers;
  };
  NotedAnswers(std::unique_ptr<const task::Answers> answers, Notes& notes)
      : Answers(kLabels), answers_(std::move(answers)), notes_(notes) {}

  std::vector<int64_t> rows_of_samples(const MicroBatch& batch) const override {
    notes_.waits_before_pass.push_back(counts().waits.size());
    notes_.passes.push_back(std::this_thread::get_id());
    return answers_->rows_of_samples(batch);
  }
  at::Tensor scores(const at::Tensor& logits) const override { return answers_->scores(logits); }
  task::Answer answer(const task::TokenisedRow& row,
                      std::span<const task::SampleScores> scores) const override {
    notes_.writers.push_back(std::this_thread::get_id());
    return answers_->answer(row, scores);
  }

 private:
  std::unique_ptr<const task::Answers> answers_;
  Notes& notes_;
};

class Rows final : public task::RowInput {
 public:
  std::optional<task::InputRow> next() override {
    if (row_ == kRows) return std::nullopt;
    std::string text;
    for (int word = 0; word <= row_ % 9; ++word)
      text += std::string(1, static_cast<char>('a' + (row_ + word) % 26)) + " ";
    ++row_;
    return task::InputRow{.texts = {text}};
  }

 private:
  int row_ = 0;
};

/// A classifier, and what makes its batches.
struct Classifier {
  explicit Classifier(at::Device place) {
    options.device = place;
    options.config.encoder.vocabulary = 31;
    options.config.encoder.width = 16;
    options.config.encoder.layers = 2;
    options.config.encoder.heads = 2;
    options.config.encoder.feed_forward.width = 24;
    options.config.encoder.positions.rows = 32;
    options.config.encoder.initializer_range = 0.5;
    options.config.num_labels = 2;
    model = model::build_model(options);
  }
  static std::vector<std::string> vocabulary() {
    std::vector<std::string> tokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (char letter = 'a'; letter <= 'z'; ++letter) tokens.emplace_back(1, letter);
    return tokens;
  }
  auto objective(bool labelled) const {
    return task->objective(tokenizer, options.config, {.sequence = sequence, .labelled = labelled});
  }

  text::WordPiece tokenizer{vocabulary(), {}, {}};
  model::ModelOptions options{.head = model::Head::classification};
  objective::SequenceOptions sequence{.max_length = 32};
  std::shared_ptr<const task::Task> task = task::find_task("classes");
  Model model;
};

std::string answers_at(at::Device place, NotedAnswers::Notes& notes, bool cuda_graphs = false) {
  const Classifier made(place);
  const task::Predictor predictor(
      made.model, made.tokenizer, made.objective(false),
      std::make_unique<NotedAnswers>(made.task->answers(kLabels, Json::object()), notes),
      {.sequence = made.sequence,
       .batch_tokens = kPassTokens,
       .window = kWindow,
       .cuda_graphs = cuda_graphs});
  Rows rows;
  std::string written;
  reset_counts();
  predictor.stream(rows, [&](std::string_view lines) { written += lines; });
  return written;
}

/// The probability of "yes" in each line.
std::vector<double> scores_in(const std::string& lines) {
  std::vector<double> scores;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);)
    scores.push_back(Json::parse(line).at("probabilities").at("yes").get<double>());
  return scores;
}

TEST(CardPredicts, APassIsQueuedBeforeTheScoresOfTheOneBeforeAreAwaited) {
  const Card card;
  NotedAnswers::Notes there, here;
  const std::string found = answers_at(at::kCUDA, there);
  const Counts counted = counts();
  EXPECT_TRUE(counted.pageable.empty()) << counted.pageable.front();
  const size_t passes = there.passes.size();
  EXPECT_GT(passes, 6U);
  EXPECT_EQ(counted.waits.size(), passes);
  // Within a window the first two passes wait for nothing; the last scores of a window are awaited at its end.
  for (size_t pass = 1; pass < passes; ++pass) {
    EXPECT_LE(there.waits_before_pass[pass], pass);
    EXPECT_GE(there.waits_before_pass[pass] + 1, pass);
  }
  EXPECT_EQ(there.waits_before_pass[1], 0U);
  EXPECT_EQ(there.waits_before_pass[2], 1U);
  for (size_t pass = 0; pass < passes; ++pass) EXPECT_NE(there.passes[pass], std::this_thread::get_id());
  for (const std::thread::id& writer : there.writers) EXPECT_EQ(writer, std::this_thread::get_id());

  const std::string expected = answers_at(at::kCPU, here);
  EXPECT_EQ(here.passes.front(), std::this_thread::get_id());
  EXPECT_EQ(there.passes.size(), here.passes.size());
  const std::vector<double> scores = scores_in(found), expected_scores = scores_in(expected);
  ASSERT_EQ(scores.size(), static_cast<size_t>(kRows));
  ASSERT_EQ(expected_scores.size(), scores.size());
  for (size_t row = 0; row < scores.size(); ++row)
    EXPECT_NEAR(scores[row], expected_scores[row], 1e-5) << row;
}

/// The scores of a pass are copied before the next pass overwrites the memory of the recording.
TEST(CardPredicts, RecordedPassesGiveTheSameAnswers) {
  const Card card;
  NotedAnswers::Notes there, here;
  const std::vector<double> scores = scores_in(answers_at(at::kCUDA, there, /*cuda_graphs=*/true));
  const Counts counted = counts();
  EXPECT_TRUE(counted.pageable.empty()) << counted.pageable.front();
  EXPECT_GT(counted.waits.size(), there.passes.size()) << "some sizes recur and are compared";
  EXPECT_EQ(there.waits_before_pass[1], 0U);
  const std::vector<double> expected = scores_in(answers_at(at::kCPU, here));
  ASSERT_EQ(scores.size(), expected.size());
  for (size_t row = 0; row < scores.size(); ++row) EXPECT_NEAR(scores[row], expected[row], 1e-5) << row;
}

/// Poolings of all kinds leave the pass on the card.
TEST(CardPools, NothingWaits) {
  const Card card;
  const at::Tensor hidden = at::arange(36, at::kFloat).sin().view({9, 4});
  MicroBatch batch;
  batch.packing = Packing::from_lengths({2, 4, 3}, {0, 1, 2}, {0, 1, 2}, {});
  const MicroBatch moved = batch.to(at::kCUDA);
  const at::Tensor there = hidden.to(at::kCUDA);
  for (const std::string& name : format::pooling_names()) {
    SCOPED_TRACE(name);
    const format::Pooling pooling = format::parse_pooling(name, "test");
    reset_counts();
    const at::Tensor pooled = model::pool_tokens(there, moved, pooling);
    EXPECT_TRUE(counts().waits.empty()) << counts().waits.front();
    EXPECT_TRUE(counts().pageable.empty()) << counts().pageable.front();
    EXPECT_TRUE(at::allclose(pooled.cpu(), model::pool_tokens(hidden, batch, pooling)));
  }
}

class Letters final : public data::Dataset {
 public:
  int64_t size() const override { return kRows; }
  uint64_t fingerprint() const override { return 1; }
  data::Sample get(int64_t index) const override {
    data::Sample sample;
    sample.columns.push_back({{tokens_.data() + index % 7, static_cast<size_t>(index % 9 + 1)}, {}});
    sample.label = static_cast<double>(index % 2);
    sample.sample_id = index;
    return sample;
  }

 private:
  std::vector<uint32_t> tokens_{5, 9, 13, 6, 20, 30, 8, 7, 12, 11, 10, 25, 6, 18, 21, 29};
};

/// Notes how many passes were queued when it got the outputs of each.
class NotedMetrics final : public Metrics {
 public:
  explicit NotedMetrics(const int& passes) : passes_(passes) {}
  void start() override {}
  void add(const TensorMap& outputs) override {
    queued.push_back(passes_);
    for (const auto& [name, output] : outputs) {
      EXPECT_TRUE(output.is_cpu()) << name;
      if (name == "logits") logits.push_back(output.clone());
    }
  }
  std::map<std::string, double> finish(double /*loss*/) override { return {}; }

  std::vector<int> queued;
  std::vector<at::Tensor> logits;

 private:
  const int& passes_;
};

/// On the processor, on a card, and on a card from recordings. A recording that is compared is a further pass.
TEST(CardEvaluates, APassIsQueuedBeforeTheOutputsOfTheOneBeforeAreRead) {
  const Card card;
  std::map<std::string, double> found[3];
  std::vector<at::Tensor> logits[3];
  size_t waits[3];
  for (const int way : {0, 1, 2}) {
    const bool on_card = way > 0;
    Classifier made(on_card ? at::kCUDA : at::kCPU);
    int passes = 0;
    const auto forward = made.model.segments.front().forward;
    made.model.segments.front().forward = [&](Activations in, const Pass& pass) {
      ++passes;
      return forward(std::move(in), pass);
    };
    const auto objective = made.objective(true);
    const Letters letters;
    NotedMetrics metrics(passes);
    reset_counts();
    found[way] = train::evaluate(made.model, train::DatasetSource(*objective, letters), &metrics, 8, 0, 42,
                                 {}, {}, /*cuda_graphs=*/way == 2);
    logits[way] = metrics.logits;
    waits[way] = counts().waits.size();
    constexpr int kBatches = kRows / 8, kCompared = 3;  // the second batch has the longest row
    EXPECT_EQ(passes, way == 2 ? kBatches + 1 : kBatches);
    for (int batch = 0; batch < kBatches; ++batch)
      EXPECT_EQ(metrics.queued.at(static_cast<size_t>(batch)),
                (on_card ? std::min(batch + 2, kBatches) : batch + 1) +
                    (way == 2 && batch + 1 >= kCompared ? 1 : 0));
    EXPECT_TRUE(counts().pageable.empty()) << counts().pageable.front();
  }
  EXPECT_EQ(waits[2], waits[1] + 5) << "norms of outputs, of what is right, of differences, and two sums";
  for (const int way : {1, 2}) {
    EXPECT_NEAR(found[0].at("loss"), found[way].at("loss"), 1e-6);
    ASSERT_EQ(logits[0].size(), logits[way].size());
    for (size_t i = 0; i < logits[0].size(); ++i)
      EXPECT_TRUE(at::allclose(logits[0][i], logits[way][i], 1e-4, 1e-5));
  }
}

}  // namespace
}  // namespace funicular::card
