// Claims about training with activations that are computed again.
#include <gtest/gtest.h>

#include "plain_training.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

/// Two segments; `runs` counts those of the first.
Model two_segments(int64_t& runs) {
  torch::manual_seed(1);
  Model model;
  Parameter* const first = model.add_parameter("first", torch::randn({6, 8}), ParameterKind::matrix);
  Parameter* const second = model.add_parameter("second", torch::randn({8, 6}), ParameterKind::matrix);
  model.segments.push_back(
      {"first", {first}, {{"x"}}, {{"hidden"}}, [=, &runs](Activations in, const Pass&) {
         ++runs;
         return Activations{{"hidden", torch::tanh(torch::mm(in.at("x"), first->compute))}};
       }});
  model.segments.push_back({"second", {second}, {{"hidden"}}, {}, [=](Activations in, const Pass& pass) {
                              const at::Tensor output = torch::mm(in.at("hidden"), second->compute);
                              pass.loss.add("squared_error", (output - pass.batch["y"]).square().sum());
                              return Activations{};
                            }});
  return model;
}

struct Outcome {
  std::vector<double> losses;
  int64_t runs = 0;
};

Outcome train_with(Recompute mode) {
  Outcome outcome;
  Model model = two_segments(outcome.runs);
  model.declare_loss(LossOver::rows);  // or the trainer runs segments to test it
  TrainerOptions options = quiet();
  options.micro_batch_size = 3;
  options.recompute = mode;
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  trainer.callbacks.on_log = [&](const StepRecord& record) { outcome.losses.push_back(record.loss); };
  trainer.fit(model, make_data(24));
  return outcome;
}

TEST(RecomputeTraining, RunsSegmentsAgainAndGivesTheSameLossesToTheLastBit) {
  const Outcome plain = train_with(Recompute::none), again = train_with(Recompute::full);
  ASSERT_EQ(plain.losses.size(), 8u);
  EXPECT_EQ(plain.losses, again.losses);
  EXPECT_EQ(plain.runs, 16);
  EXPECT_EQ(again.runs, 32);
}

}  // namespace
}  // namespace funicular::train
