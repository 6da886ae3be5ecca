// Claims about batches that grow or count tokens, through the trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "plain_training.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

/// Rows of 1 to 5 tokens; notes the lengths of the rows of each batch.
struct NotedRows final : Source {
  mutable std::vector<std::vector<int64_t>> batches;
  TensorDataset data = make_data(22);
  int64_t size() const override { return data.size(); }
  uint64_t fingerprint() const override { return data.fingerprint(); }
  int64_t length(int64_t sample) const override { return 1 + sample % 5; }
  LossOver loss_over() const override { return LossOver::rows; }
  MicroBatch collate(std::span<const data::Draw> draws, const RandomState& random) const override {
    batches.emplace_back();
    for (const data::Draw& draw : draws) batches.back().push_back(length(draw.sample_id));
    return data.collate(draws, random);
  }
};

TrainerOptions by_epochs(double epochs) {
  TrainerOptions options = quiet();
  options.max_steps = 0;
  options.num_train_epochs = epochs;
  options.num_workers = 0;
  return options;
}

TEST(Trainer, BatchesGrowToTheirFullSizeAndEpochsCountTheirRows) {
  TrainerOptions options = by_epochs(2);
  options.batch_warmup_steps = 4;
  options.batch_warmup_start = 2;
  const NotedRows source;
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  std::vector<double> epochs, rates;
  trainer.callbacks.on_log = [&](const StepRecord& record) {
    epochs.push_back(record.epoch * 22);
    rates.push_back(record.learning_rate);
  };
  EXPECT_EQ(trainer.fit(make_plain(), source, plain_loss).step, 9);
  std::vector<size_t> sizes;
  for (const auto& batch : source.batches) sizes.push_back(batch.size());
  EXPECT_EQ(sizes, (std::vector<size_t>{2, 3, 4, 5, 6, 6, 6, 6, 6}));
  int64_t rows = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    rows += static_cast<int64_t>(sizes[i]);
    EXPECT_NEAR(epochs.at(i), static_cast<double>(rows), 1e-9);
    EXPECT_NEAR(rates.at(i), optim::Sgd{}.learning_rate * (1 - static_cast<double>(i) / 9), 1e-12)
        << "by steps";
  }
}

TEST(Trainer, BatchesInTokensTakeRowsWhileTheyFitAndAreCutByTokens) {
  TrainerOptions options = by_epochs(1);
  options.batch_size = 0;
  options.batch_tokens = 12;
  const NotedRows whole, cut;
  const auto loss_of = [&](const NotedRows& source) {
    Trainer trainer(options, parallel::make_single, optim::Sgd{});
    return trainer.fit(make_plain(), source, plain_loss, {}, LossOver::rows);  // no trial collates rows
  };
  const FitResult expected = loss_of(whole);
  for (size_t i = 0; i + 1 < whole.batches.size(); ++i) {
    const int64_t tokens = std::accumulate(whole.batches[i].begin(), whole.batches[i].end(), int64_t{0});
    EXPECT_LE(tokens, 12);
    EXPECT_GT(tokens + whole.batches[i + 1].front(), 12) << "one more fits";
  }
  options.micro_batch_tokens = 5;
  const FitResult found = loss_of(cut);
  EXPECT_EQ(found.step, expected.step);
  EXPECT_NEAR(found.loss, expected.loss, 1e-5 * expected.loss);
  EXPECT_GT(cut.batches.size(), whole.batches.size());
  for (const auto& piece : cut.batches) EXPECT_LE(std::accumulate(piece.begin(), piece.end(), int64_t{0}), 5);
}

TEST(Trainer, AnEvaluationIsCutByItsBatchSizeOrAsABatchInTokens) {
  struct Limits {
    int64_t eval_batch_size, micro_batch_size, micro_batch_tokens;
    int64_t most_rows, most_tokens;  ///< of a forward pass in evaluation
  };
  for (const Limits& limits :
       {Limits{0, 0, 0, 22, 12}, {0, 0, 5, 22, 5}, {0, 2, 0, 2, 12}, {3, 0, 0, 3, 15}, {3, 0, 6, 3, 6}}) {
    TrainerOptions options = by_epochs(1);
    options.batch_size = 0;
    options.batch_tokens = 12;
    options.eval_batch_size = limits.eval_batch_size;
    options.micro_batch_size = limits.micro_batch_size;
    options.micro_batch_tokens = limits.micro_batch_tokens;
    const NotedRows source, unseen;
    Evaluation evaluation;
    evaluation.data = &unseen;
    Trainer trainer(options, parallel::make_single, optim::Sgd{});
    trainer.fit(make_plain(), source, plain_loss, evaluation, LossOver::rows);
    size_t most_rows = 0;
    int64_t rows = 0, most_tokens = 0;
    for (const std::vector<int64_t>& piece : unseen.batches) {
      rows += std::ssize(piece);
      most_rows = std::max(most_rows, piece.size());
      most_tokens = std::max(most_tokens, std::accumulate(piece.begin(), piece.end(), int64_t{0}));
    }
    EXPECT_EQ(rows % 22, 0) << "an evaluation leaves rows out";
    EXPECT_GT(rows, 0);
    EXPECT_LE(most_rows, static_cast<size_t>(limits.most_rows));
    EXPECT_LE(most_tokens, limits.most_tokens);
    EXPECT_GT(most_tokens, limits.most_tokens - 5) << "one more row fits";
  }
}

TEST(Trainer, DistinctBatchesNeitherGrowNorCountTokens) {
  for (const bool tokens : {false, true}) {
    TrainerOptions options = quiet();
    options.distinct_batches = true;
    if (tokens) {
      options.batch_size = 0;
      options.batch_tokens = 12;
    } else {
      options.batch_warmup_steps = options.batch_warmup_start = 2;
    }
    const NotedRows source;
    Trainer trainer(options, parallel::make_single, optim::Sgd{});
    EXPECT_THROW(trainer.fit(make_plain(), source, plain_loss), InputError);
  }
}

}  // namespace
}  // namespace funicular::train
