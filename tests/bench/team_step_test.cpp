// Whole training steps by the kernels for GPUs beside those of the processor, in every precision.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <vector>

#include "funicular/bench/timed_rows.h"
#include "funicular/bench/training_step.h"
#include "funicular/model/encoder.h"
#include "tests/team_kernels.h"

namespace funicular::bench {
namespace {

struct Settings {
  Precision precision = Precision::fp64;
  double dropout = 0.1;
  bool repeatable = true;
  Recompute recompute = Recompute::none;
  int64_t micro_batch_size = 0;
  uint64_t seed = 5;  ///< of the masks
};

struct Trained {
  std::vector<double> losses;
  at::Tensor weights, moved;  ///< of all parameters, one after the other; what four steps added to them
};

/// How far what 16 bits add to weights may lie apart (distance); it is 0.06 without a GPU.
constexpr double kSixteenBits = 0.15;

model::ModelOptions options_of(const Settings& settings, at::Device place) {
  model::ModelOptions options;
  options.config.encoder.vocabulary = 300;
  options.config.encoder.width = 64;
  options.config.encoder.layers = 2;
  options.config.encoder.heads = 2;
  options.config.encoder.feed_forward.width = 96;
  options.config.encoder.positions.rows = 48;
  options.config.encoder.initializer_range = 0.1;
  options.config.encoder.dropouts.hidden = options.config.encoder.dropouts.attention = settings.dropout;
  options.dtype = master_type(settings.precision);
  options.device = place;
  options.repeatable = settings.repeatable;
  return options;
}

at::Tensor weights_of(TrainingStep& step) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : step.model().parameters)
    all.push_back(parameter->master.detach()
                      .to(at::kCPU, at::kDouble, /*non_blocking=*/false, /*copy=*/true)
                      .flatten());
  return at::cat(all);
}

Trained train(const Settings& settings, bool team) {
  const TeamKernels kernels(team);
  TrainingStep step(model::build_model(options_of(settings, kernels.place())),
                    {settings.precision, settings.recompute, settings.micro_batch_size > 0});
  Trained result;
  const at::Tensor before = weights_of(step);
  for (uint64_t i = 0; i < 4; ++i) {
    const Rows rows = make_rows({.longest = 40, .batch_size = 4, .vocabulary = 300}, i);
    result.losses.push_back(
        step.run(make_batch(rows, static_cast<int64_t>(i), settings.micro_batch_size, settings.seed)).loss);
  }
  result.weights = weights_of(step);
  result.moved = result.weights - before;
  return result;
}

double distance(const Trained& a, const Trained& b) {
  return ((a.moved - b.moved).norm() / b.moved.norm()).item<double>();
}

/// Of the losses the largest difference, of what was added to the weights the distance, both relative.
void expect_near(const Trained& a, const Trained& b, double losses, double moved) {
  for (size_t i = 0; i < a.losses.size(); ++i)
    EXPECT_NEAR(a.losses[i] / b.losses[i], 1, losses) << "step " << i;
  EXPECT_LT(distance(a, b), moved);
}

TEST(TeamStep, TrainsAsTheProcessorInWidePrecisions) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (const int64_t micro_batch : {0, 3}) {
      const Settings settings{.recompute = recompute, .micro_batch_size = micro_batch};
      expect_near(train(settings, true), train(settings, false), 1e-11, 1e-8);
    }
  const Settings single{.precision = Precision::fp32};
  expect_near(train(single, true), train(single, false), 1e-5, 1e-2);
}

/// A step of AdamW is as long whatever its gradient is: where rounding decides its sign, weights part by two steps.
TEST(TeamStep, TrainsAsTheProcessorInSixteenBitsUpToRounding) {
  for (const Precision precision : {Precision::bf16, Precision::fp16})
    for (const bool repeatable : {true, false}) {
      // LibTorch's attention draws a mask of its own.
      const Settings settings{
          .precision = precision, .dropout = repeatable ? 0.1 : 0, .repeatable = repeatable};
      SCOPED_TRACE(testing::Message() << precision_name(precision) << " " << repeatable);
      const Trained team = train(settings, true), processor = train(settings, false);
      expect_near(team, processor, 5e-3, kSixteenBits);
      EXPECT_FALSE(at::equal(team.weights, processor.weights)) << "both ran the same kernels";
    }
}

TEST(TeamStep, OfOtherMasksIsFartherAwayThanRounding) {
  Settings settings{.precision = Precision::bf16};
  const Trained one = train(settings, true);
  settings.seed = 6;
  EXPECT_GT(distance(train(settings, true), one), 2 * kSixteenBits);
}

TEST(TeamStep, RepeatsBitForBit) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const Settings settings{.precision = precision, .micro_batch_size = 3};
    const Trained once = train(settings, true), again = train(settings, true);
    EXPECT_EQ(once.losses, again.losses);
    EXPECT_TRUE(at::equal(once.weights, again.weights));
  }
}

/// What is computed again drops what was dropped before, whoever draws the mask.
TEST(TeamStep, RecomputesWithTheSameMasks) {
  for (const bool repeatable : {true, false}) {
    Settings settings{.precision = Precision::bf16, .dropout = 0.4, .repeatable = repeatable};
    const Trained kept = train(settings, true);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      settings.recompute = recompute;
      expect_near(train(settings, true), kept, 5e-3, repeatable ? 1e-6 : kSixteenBits);
    }
  }
}

}  // namespace
}  // namespace funicular::bench
