// Claims about fp16 training: an overflow costs its batch and nothing else.
#include <gtest/gtest.h>

#include "funicular/base/error.h"
#include "helpers.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

/// Two matrices in whatever type mixed precision gives them.
Model low_precision_model() {
  torch::manual_seed(1);
  Model model;
  model.low_precision = true;
  Parameter* const first = model.add_parameter("first", torch::randn({6, 8}), ParameterKind::matrix);
  Parameter* const second = model.add_parameter("second", torch::randn({8, 6}), ParameterKind::matrix);
  model.segments.push_back(
      {"all", {first, second}, {{"x"}}, {}, [=](Activations in, const Pass& pass) {
         const at::Tensor x = in.at("x").to(first->compute.scalar_type());
         const at::Tensor output = torch::mm(torch::tanh(torch::mm(x, first->compute)), second->compute);
         pass.loss.add("squared_error", (output.to(at::kFloat) - pass.batch["y"]).square().sum());
         return Activations{};
       }});
  return model;
}

/// `data` without its first `rows` rows.
TensorDataset without_first(const TensorDataset& data, int64_t rows) {
  TensorMap rest;
  for (const auto& [name, value] : data.tensors()) rest[name] = value.slice(0, rows).contiguous();
  return TensorDataset(rest);
}

TrainerOptions fp16_options(int64_t steps) {
  TrainerOptions options;
  options.max_steps = steps;
  options.batch_size = 4;
  options.shuffle = false;
  options.schedule.kind = optim::ScheduleKind::constant;
  options.logging_steps = 1;
  options.progress = false;
  options.precision = Precision::fp16;
  return options;
}

struct Trained {
  std::map<std::string, at::Tensor> weights;
  std::vector<StepRecord> records;
  std::vector<bool> updated;
  FitResult result;
};

Trained fit(const TrainerOptions& options, const TensorDataset& data,
            const optim::OptimizerSpec& optimizer = optim::AdamW{.learning_rate = 0.01,
                                                                 .weight_decay = 0.1}) {
  Trained trained;
  Model model = low_precision_model();
  Trainer trainer(options, parallel::make_single, optimizer);
  trainer.callbacks.on_log = [&](const StepRecord& record) { trained.records.push_back(record); };
  trainer.callbacks.on_step = [&](int64_t, const parallel::StepResult& result) {
    trained.updated.push_back(result.finite);
  };
  trained.result = trainer.fit(model, data);
  for (const auto& parameter : model.parameters)
    trained.weights[parameter->name] = parameter->master.detach().clone();
  return trained;
}

void expect_same_weights(const Trained& a, const Trained& b) {
  for (const auto& [name, value] : a.weights) EXPECT_TRUE(torch::equal(value, b.weights.at(name))) << name;
}

TEST(LossScaling, ABatchWhoseGradientsOverflowIsAsIfItHadNotBeenThere) {
  const TensorDataset data = make_data(96);
  TrainerOptions options = fp16_options(24);
  options.loss_scale.initial_scale = options.loss_scale.max_scale;  // 2^24: too much
  options.loss_scale.hysteresis = 1;
  const Trained scaled = fit(options, data);
  const int64_t skipped = scaled.result.skipped_steps;
  ASSERT_GE(skipped, 3);
  ASSERT_LT(skipped, 20);
  for (int64_t i = 0; i < 24; ++i) EXPECT_EQ(scaled.updated[static_cast<size_t>(i)], i >= skipped) << i;
  EXPECT_EQ(scaled.records.back().loss_scale, std::ldexp(1, 24 - static_cast<int>(skipped)));
  EXPECT_EQ(scaled.records.back().skipped_steps, skipped);

  TrainerOptions plain = fp16_options(24 - skipped);
  plain.loss_scale.fixed_scale = scaled.records.back().loss_scale;
  const Trained rest = fit(plain, without_first(data, 4 * skipped));
  EXPECT_EQ(rest.result.skipped_steps, 0);
  expect_same_weights(scaled, rest);
}

TEST(LossScaling, TheScaleItselfChangesNothing) {
  TrainerOptions options = fp16_options(6);
  options.loss_scale.fixed_scale = 64;
  const Trained small = fit(options, make_data(24));
  options.loss_scale.fixed_scale = 512;
  expect_same_weights(small, fit(options, make_data(24)));
  // AdamW's update would be the same with the scale left in; that of plain gradients would not.
  const optim::Sgd plain{.learning_rate = 0.01};
  const Trained large = fit(options, make_data(24), plain);
  options.loss_scale.fixed_scale = 64;
  expect_same_weights(large, fit(options, make_data(24), plain));
}

TEST(LossScaling, GoesOnAfterAResumeAsIfThereHadBeenNone) {
  const TensorDataset data = make_data(96);
  TrainerOptions options = fp16_options(24);
  options.loss_scale.initial_scale = options.loss_scale.max_scale;
  options.loss_scale.hysteresis = 1;
  options.loss_scale.growth_interval = 2;
  const Trained whole = fit(options, data);
  ASSERT_LT(whole.result.skipped_steps, 20);
  for (const int64_t cut : {2, 7, 20}) {
    const TemporaryFolder folder;
    options.output = folder / "run";
    // A run that ends before its first update is an error, and its checkpoint stays.
    const bool updated = cut == 20;
    options.save_steps = cut;
    options.max_steps = updated ? cut : cut + 1;
    if (updated)
      fit(options, data);
    else
      EXPECT_THROW(fit(options, data), RunError);
    options.max_steps = 24;
    const Trained resumed = fit(options, data);
    EXPECT_EQ(resumed.result.resumed_from, cut);
    expect_same_weights(whole, resumed);
    EXPECT_EQ(resumed.records.back().loss_scale, whole.records.back().loss_scale);
    EXPECT_EQ(resumed.result.skipped_steps, whole.result.skipped_steps);
  }
}

TEST(MixedPrecisionResume, IsBitIdenticalWithFrozenMatricesToo) {
  for (const Precision precision : {Precision::bf16, Precision::fp16})
    for (const std::vector<std::string>& frozen : {std::vector<std::string>{}, {"first"}}) {
      TrainerOptions options = fp16_options(8);
      options.precision = precision;
      options.frozen = frozen;
      options.loss_scale.initial_scale = 256;
      const Trained whole = fit(options, make_data(32));
      const TemporaryFolder folder;
      options.output = folder / "run";
      options.max_steps = 5;
      fit(options, make_data(32));
      options.max_steps = 8;
      const Trained resumed = fit(options, make_data(32));
      EXPECT_EQ(resumed.result.resumed_from, 5);
      expect_same_weights(whole, resumed);
    }
}

TEST(LossScaling, EndsTheRunWhereNoScaleHelps) {
  TrainerOptions options = fp16_options(30);
  options.loss_scale.fixed_scale = 1e9;
  try {
    fit(options, make_data(24));
    FAIL() << "expected an error";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("step 10: the gradients overflowed 10 times in a row"),
              std::string::npos)
        << error.what();
  }
}

TEST(LossScaling, ALossThatIsNotFiniteIsNoOverflow) {
  torch::manual_seed(3);
  const TensorDataset data({{"x", torch::randn({8, 6})}, {"y", torch::full({8, 6}, INFINITY)}});
  EXPECT_THROW(fit(fp16_options(2), data), RunError);
}

}  // namespace
}  // namespace funicular::train
