// Claims about callbacks that see activations while a model trains.
#include <gtest/gtest.h>

#include "plain_training.h"

namespace funicular::train::observe_tests {
namespace {

using namespace funicular::test;

/// Three segments, of which the first two show what they give.
Model model_that_shows() {
  torch::manual_seed(1);
  Model model;
  for (const char* const name : {"first", "second"}) {
    Parameter* const weight = model.add_parameter(name, torch::randn({6, 6}), ParameterKind::matrix);
    model.segments.push_back({name, {weight}, {{"x"}}, {{"x"}}, [=](Activations in, const Pass& pass) {
                                const at::Tensor out = torch::tanh(torch::mm(in.at("x"), weight->compute));
                                pass.taps(name, out);
                                return Activations{{"x", out}};
                              }});
  }
  model.segments.push_back({"loss", {}, {{"x"}}, {}, [](Activations in, const Pass& pass) {
                              pass.loss.add("squared_error", (in.at("x") - pass.batch["y"]).square().sum());
                              return Activations{};
                            }});
  return model;
}

struct Seen {
  std::vector<std::pair<int64_t, std::string>> names;  ///< with their steps
  std::vector<at::Tensor> values;
  std::vector<double> losses;
};

Seen train_watched(Recompute mode, bool watched) {
  Seen seen;
  Model model = model_that_shows();
  TrainerOptions options = quiet();
  options.max_steps = 2;
  options.micro_batch_size = 3;
  options.recompute = mode;
  Trainer trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  trainer.callbacks.on_log = [&](const StepRecord& record) { seen.losses.push_back(record.loss); };
  if (watched)
    trainer.callbacks.observe = [&](int64_t step, std::string_view name, const at::Tensor& value) {
      seen.names.emplace_back(step, name);
      seen.values.push_back(value.detach().clone());
    };
  trainer.fit(model, make_data(12));
  return seen;
}

TEST(ObservedTraining, ShowsEachActivationOnceWithItsStepWhateverIsRecomputed) {
  const Seen plain = train_watched(Recompute::none, true);
  const std::vector<std::pair<int64_t, std::string>> expected{{1, "first"},  {1, "second"}, {1, "first"},
                                                              {1, "second"}, {2, "first"},  {2, "second"},
                                                              {2, "first"},  {2, "second"}};
  EXPECT_EQ(plain.names, expected);
  const Seen again = train_watched(Recompute::full, true);
  EXPECT_EQ(again.names, expected);
  for (size_t i = 0; i < plain.values.size(); ++i)
    EXPECT_TRUE(torch::equal(plain.values[i], again.values[i])) << i;
  EXPECT_EQ(again.losses, plain.losses);
}

TEST(ObservedTraining, IsTheSameTraining) {
  EXPECT_EQ(train_watched(Recompute::none, true).losses, train_watched(Recompute::none, false).losses);
}

}  // namespace
}  // namespace funicular::train::observe_tests
