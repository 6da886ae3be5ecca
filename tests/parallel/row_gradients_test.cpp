// Claims about gradients of rows in a whole step of one process: they change nothing but time and memory.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "funicular/model/encoder.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {
namespace {

model::ModelOptions small_classifier() {
  model::ModelOptions options;
  options.config.encoder.vocabulary = 900;
  options.config.encoder.width = 24;
  options.config.encoder.layers = 2;
  options.config.encoder.heads = 3;
  options.config.encoder.feed_forward.width = 40;
  options.config.encoder.positions.rows = 80;
  options.config.num_labels = 3;
  options.config.encoder.initializer_range = 0.2;
  options.head = model::Head::classification;
  return options;
}

MicroBatch batch_of(int64_t number) {
  const std::vector<int32_t> lengths = {9, 1, 70, 5};
  const std::vector<int64_t> draws = {4 + 4 * number, 5 + 4 * number, 6 + 4 * number, 7 + 4 * number};
  MicroBatch batch;
  batch.packing = Packing::from_lengths(lengths, draws, draws, {.seed = 7, .training = true});
  const int64_t tokens = batch.packing.tokens();
  batch.tensors["token_ids"] = (torch::arange(tokens) * 37 + 5 + 100 * number) % 900;
  batch.tensors["token_type_ids"] = torch::arange(tokens) % 2;
  batch.tensors["labels"] = torch::arange(batch.packing.sequences()) % 3;
  batch.counts = {{"classification", 4}};
  return batch;
}

struct Training {
  Training(bool rows, const Numerics& numerics, const optim::OptimizerSpec& spec = optim::AdamW{}) {
    if (!rows) model.makes_row_gradients = false;
    strategy->attach(model, optim::make_optimizer(spec), numerics);
  }

  StepResult step(int64_t update, int64_t micro_batches, double loss_scale = 1) {
    std::vector<MicroBatch> batches;
    Counts counts;
    for (int64_t i = 0; i < micro_batches; ++i) {
      batches.push_back(batch_of(update * micro_batches + i));
      add_counts(counts, batches.back().counts);
    }
    StepSettings settings;
    settings.learning_rate = 0.01;
    settings.update = update;
    settings.loss_scale = loss_scale;
    settings.inspect = [&] { sparse = words().gradient.is_sparse(); };
    return strategy->step(batches, counts, settings);
  }
  Parameter& words() const { return *model.find("bert.embeddings.word_embeddings.weight"); }

  Model model = model::build_model(small_classifier());
  std::unique_ptr<Strategy> strategy = make_single();
  bool sparse = false;
};

void expect_same_weights(const Training& a, const Training& b) {
  for (size_t i = 0; i < a.model.parameters.size(); ++i)
    EXPECT_TRUE(torch::equal(a.model.parameters[i]->master, b.model.parameters[i]->master))
        << a.model.parameters[i]->name;
}

TEST(RowGradients, ChangeNothingInTraining) {
  for (const Numerics& numerics : {Numerics{}, Numerics{at::kBFloat16, false}, Numerics{at::kHalf, false}})
    for (const int64_t micro_batches : {1, 2}) {
      if (micro_batches > 1 && numerics.compute) continue;  // their gradients are summed in the masters' type
      Training rows(true, numerics), dense(false, numerics);
      for (int64_t update = 1; update <= 4; ++update) {
        const StepResult a = rows.step(update, micro_batches), b = dense.step(update, micro_batches);
        EXPECT_EQ(a.loss, b.loss);
        EXPECT_EQ(a.gradient_norm, b.gradient_norm);
        EXPECT_EQ(rows.sparse, micro_batches == 1);
        EXPECT_FALSE(dense.sparse);
      }
      expect_same_weights(rows, dense);
    }
}

TEST(RowGradients, OfAStepThatOverflowsAreNamedAndLeaveNoTrace) {
  Training rows(true, {at::kHalf, false}), dense(false, {at::kHalf, false});
  for (Training* const run : {&rows, &dense}) {
    run->step(1, 1);
    const StepResult result = run->step(2, 1, 1e9);
    EXPECT_FALSE(result.finite);
    EXPECT_EQ(result.non_finite_gradient, "bert.embeddings.word_embeddings.weight");
    run->step(2, 1);
  }
  expect_same_weights(rows, dense);
}

TEST(RowGradients, AreNotForOptimizersThatDoNotKnowThem) {
  Training run(true, {}, optim::Sgd{});
  run.step(1, 1);
  EXPECT_FALSE(run.sparse);
}

TEST(RowGradients, EndWithTheStrategy) {
  Training run(true, {});
  run.step(1, 1);
  EXPECT_TRUE(run.sparse);
  run.strategy->detach();
  LossSink sink;
  const MicroBatch batch = batch_of(0);
  run.model.forward({}, batch, {}, sink);
  sink.total(batch.counts).backward();
  EXPECT_FALSE(run.words().compute.grad().is_sparse());
}

}  // namespace
}  // namespace funicular::parallel
