// Recorded passes on a stand-in of a card: a recording cannot send anything to the card.

#include "funicular/parallel/graphed_passes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "funicular/bench/timed_rows.h"
#include "funicular/bench/training_step.h"
#include "funicular/model/encoder.h"
#include "stand_in.h"

namespace funicular::card::graphed_passes_tests {
namespace {

TEST(GraphedPassesOnACard, SendNothingButTheBatch) {
  const Card card;
  model::ModelOptions options;
  options.config.encoder.vocabulary = 40;
  options.config.encoder.width = 16;
  options.config.encoder.layers = 2;
  options.config.encoder.heads = 2;
  options.config.encoder.feed_forward.width = 24;
  options.config.encoder.positions.rows = 34;
  options.head = model::Head::masked_lm;
  options.device = at::kCUDA;
  Model model = model::build_model(options);
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : model.parameters)
    gradients.push_back(parameter->compute.mutable_grad() = at::zeros_like(parameter->compute));
  parallel::GraphedPasses passes(model, gradients);
  for (int64_t i = 0; i < 5; ++i) {
    const bench::Rows rows =
        bench::make_rows({.longest = 34, .batch_size = 3, .vocabulary = 40}, static_cast<uint64_t>(i));
    const train::GlobalBatch batch = bench::make_batch(rows, i, 3, 5);
    parallel::TermSums sums;
    reset_counts();
    passes.run(batch.micro_batches[0], batch.counts, 1, sums);
    EXPECT_EQ(counts().uploads, 1) << i;
    EXPECT_TRUE(counts().pageable.empty()) << i;
    EXPECT_EQ(counts().waits.empty(), i != 2) << i << ": the third one is compared";
  }
  EXPECT_EQ(passes.starts(), 3);
}

}  // namespace
}  // namespace funicular::card::graphed_passes_tests
