// Claims about the norm of all gradients of a step: it is theirs, wherever its parts were taken.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "funicular/model/encoder.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {
namespace {

/// Masked words: the table of embeddings is the head's weight too, so its gradient is written twice.
Model tied_model() {
  model::ModelOptions options;
  options.config.encoder.vocabulary = 330;
  options.config.encoder.width = 64;
  options.config.encoder.layers = 2;
  options.config.encoder.heads = 2;
  options.config.encoder.feed_forward.width = 96;
  options.config.encoder.positions.rows = 80;
  options.config.encoder.initializer_range = 0.2;
  return model::build_model(options);
}

MicroBatch masked_batch(int64_t number) {
  MicroBatch batch;
  batch.packing =
      Packing::from_lengths({33, 70, 2}, {number, 8, 9}, {number, 8, 9}, {.seed = 7, .training = true});
  const int64_t tokens = batch.packing.tokens();
  batch.tensors["token_ids"] = (torch::arange(tokens) * 37 + 5 + number) % 330;
  batch.tensors["token_type_ids"] = torch::arange(tokens) % 2;
  batch.tensors["mlm_rows"] = torch::arange(3, tokens, 7);
  batch.tensors["mlm_labels"] = batch.tensors["mlm_rows"] % 330;
  batch.counts = {{"mlm", static_cast<double>(batch.tensors["mlm_rows"].numel())}};
  return batch;
}

class SumOfSquares : public StateVisitor {
 public:
  void visit(const StateSlice& slice) override {
    if (slice.kind == StateSlice::Kind::gradient)
      sum += slice.local.to(at::kDouble).square().sum().item<double>();
  }
  double sum = 0;
};

TEST(GradientNorm, IsThatOfTheGradientsOfTheUpdate) {
  for (const Numerics& numerics : {Numerics{}, Numerics{at::kBFloat16, false}, Numerics{at::kBFloat16}})
    for (const int64_t micro_batches : {1, 2})
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        if (micro_batches > 1 && numerics.compute && !numerics.accumulates) continue;
        Model model = tied_model();
        const std::unique_ptr<Strategy> strategy = make_single();
        strategy->attach(model, optim::make_optimizer(optim::AdamW{}), numerics);
        for (int64_t update = 1; update <= 3; ++update) {
          std::vector<MicroBatch> batches;
          Counts counts;
          for (int64_t i = 0; i < micro_batches; ++i) {
            batches.push_back(masked_batch(10 * update + i));
            add_counts(counts, batches.back().counts);
          }
          SumOfSquares gradients;
          StepSettings settings;
          settings.learning_rate = 0.01;
          settings.update = update;
          settings.recompute = recompute;
          settings.inspect = [&] { strategy->visit_gradients(gradients); };
          const StepResult result = strategy->step(batches, counts, settings);
          EXPECT_NEAR(result.gradient_norm / std::sqrt(gradients.sum), 1, 1e-6);
        }
      }
}

}  // namespace
}  // namespace funicular::parallel
