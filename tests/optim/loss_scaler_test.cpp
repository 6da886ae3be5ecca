// Claims about the loss scaler: against LibTorch's own rule, and by hand.
#include <ATen/ops/_amp_update_scale.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "funicular/base/error.h"
#include "funicular/base/random.h"
#include "funicular/optim/loss_scaler.h"

namespace funicular::optim {
namespace {

using Verdict = LossScaler::Verdict;

TEST(LossScaler, WithoutHysteresisIsLibTorchsGradScaler) {
  LossScaler ours({.growth_interval = 7, .hysteresis = 1, .min_scale = 1e-30, .max_scale = 1e30});
  at::Tensor scale = torch::tensor(65536.0f), tracker = torch::tensor(0, at::kInt);
  for (uint32_t step = 0; step < 2000; ++step) {
    const bool overflow = philox({1, 2}, make_counter(step, 0, 0))[0] % 12 == 0;
    std::tie(scale, tracker) =
        at::_amp_update_scale(scale, tracker, torch::tensor(overflow ? 1.0f : 0.0f), 2, 0.5, 7);
    EXPECT_EQ(ours.update(overflow), overflow ? Verdict::skip : Verdict::update);
    ASSERT_EQ(ours.scale(), scale.item<float>()) << step;
  }
}

TEST(LossScaler, StartsAtTwoToTheSixteenthAndDoublesAfterTwoThousandGoodSteps) {
  LossScaler scaler;
  for (int step = 0; step < 1999; ++step) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(LossScaler, ToleratesOverflowsUpToTheHysteresisAndForgetsThemWhenItGrows) {
  LossScaler scaler({.initial_scale = 64, .growth_interval = 4, .hysteresis = 3});
  const auto run = [&](std::initializer_list<bool> overflows) {
    for (const bool overflow : overflows) scaler.update(overflow);
    return scaler.scale();
  };
  EXPECT_EQ(run({true, false, true, false}), 64) << "two are tolerated, in a row or not";
  EXPECT_EQ(run({true}), 32);
  EXPECT_EQ(run({true}), 16) << "each further one counts";
  EXPECT_EQ(run({false, false, false}), 16);
  EXPECT_EQ(run({false}), 32);
  EXPECT_EQ(run({true, true}), 32) << "tolerated again";
  EXPECT_EQ(run({true}), 16);
  EXPECT_EQ(scaler.skipped_steps(), 7);
}

TEST(LossScaler, AnOverflowStartsTheIntervalOfGrowthAnew) {
  LossScaler scaler({.initial_scale = 64, .growth_interval = 3, .hysteresis = 9});
  for (const bool overflow : {false, false, true, false, false}) scaler.update(overflow);
  EXPECT_EQ(scaler.scale(), 64);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 128);
}

TEST(LossScaler, StaysBetweenFloorAndCeiling) {
  LossScaler scaler(
      {.initial_scale = 4, .growth_interval = 1, .hysteresis = 1, .min_scale = 3, .max_scale = 5});
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 5);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 3);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 3);
}

TEST(LossScaler, IsExhaustedByOverflowsInARowAtTheFloorOnly) {
  LossScaler scaler({.initial_scale = 4, .growth_interval = 100, .hysteresis = 1, .patience = 3});
  EXPECT_EQ(scaler.update(true), Verdict::skip);  // 4 -> 2
  EXPECT_EQ(scaler.update(true), Verdict::skip);  // 2 -> 1
  EXPECT_EQ(scaler.update(true), Verdict::exhausted) << "the third in a row, and at the floor";
  EXPECT_EQ(scaler.update(false), Verdict::update);
  EXPECT_EQ(scaler.update(true), Verdict::skip) << "the count starts anew";
  EXPECT_EQ(scaler.update(true), Verdict::skip);
  EXPECT_EQ(scaler.update(true), Verdict::exhausted);

  LossScaler high({.hysteresis = 1, .patience = 3});
  for (int i = 0; i < 16; ++i) EXPECT_EQ(high.update(true), Verdict::skip) << "a lower scale may still help";
  EXPECT_EQ(high.update(true), Verdict::exhausted);
}

TEST(LossScaler, OfSeveralStepsAtATimeHearsOfAnyNumberOfOverflowsOnce) {
  LossScaler scaler({.initial_scale = 64, .growth_interval = 8, .hysteresis = 1});
  EXPECT_EQ(scaler.steps_to_ask(), 1);
  EXPECT_EQ(scaler.update_after(5, 3), Verdict::skip);
  EXPECT_EQ(scaler.scale(), 32);
  EXPECT_EQ(scaler.skipped_steps(), 3);
  EXPECT_EQ(scaler.steps_to_ask(), 1) << "an overflow starts anew";
  EXPECT_EQ(scaler.update_after(3, 0), Verdict::update);
  EXPECT_EQ(scaler.steps_to_ask(), 3);
  scaler.update_after(3, 0);
  EXPECT_EQ(scaler.steps_to_ask(), 2) << "not beyond the growth";
  EXPECT_EQ(scaler.scale(), 32);
  scaler.update_after(2, 0);
  EXPECT_EQ(scaler.scale(), 64);
  EXPECT_EQ(scaler.steps_to_ask(), 1);
  scaler.update_after(7, 0);
  LossScaler shorter({.growth_interval = 4});
  shorter.restore(Json(scaler.state()), "state");
  EXPECT_EQ(shorter.steps_to_ask(), 1) << "a run that goes on with a shorter interval";
}

TEST(LossScaler, AStaticScaleNeverMoves) {
  LossScaler scaler({.growth_interval = 2, .hysteresis = 1, .fixed_scale = 128.0, .patience = 2});
  for (const bool overflow : {false, false, false, true, false, true}) scaler.update(overflow);
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_EQ(scaler.skipped_steps(), 2);
  EXPECT_EQ(scaler.update(true), Verdict::exhausted);
}

TEST(LossScaler, GoesOnFromItsStateAsIfNothingHadHappened) {
  const LossScalerOptions options{.initial_scale = 64, .growth_interval = 5, .hysteresis = 2, .patience = 3};
  for (uint32_t stop = 0; stop < 60; ++stop) {
    LossScaler whole(options);
    std::optional<LossScaler> resumed;
    for (uint32_t step = 0; step < 60; ++step) {
      if (step == stop) {
        resumed.emplace(options);
        resumed->restore(parse_json(whole.state().dump(), "state"), "state");
      }
      const bool overflow = philox({3, 4}, make_counter(step, 0, 0))[0] % 3 == 0;
      const Verdict verdict = whole.update(overflow);
      if (resumed) {
        ASSERT_EQ(resumed->update(overflow), verdict);
        ASSERT_EQ(resumed->state(), whole.state());
      }
    }
  }
}

TEST(LossScaler, RefusesADamagedStateAndKeepsItsOwn) {
  LossScaler scaler;
  const OrderedJson before = scaler.state();
  for (const auto& [key, value] : before.items())
    for (const Json& wrong : {Json(), Json(-1), Json("text"), Json::array()}) {
      Json state = before;
      if (wrong.is_null())
        state.erase(key);
      else
        state[key] = wrong;
      EXPECT_THROW(scaler.restore(state, "state.json"), InputError) << key << " " << wrong;
      EXPECT_EQ(scaler.state(), before);
    }
}

TEST(LossScaler, RestoresWithinItsOwnRange) {
  const auto restored = [](const LossScalerOptions& options) {
    LossScaler other({.max_scale = 1e9}), scaler(options);
    Json state = other.state();
    state["scale"] = 1e9;
    scaler.restore(state, "state");
    return scaler.scale();
  };
  EXPECT_EQ(restored({}), 16777216);
  EXPECT_EQ(restored({.fixed_scale = 8.0}), 8);
}

TEST(LossScaler, RefusesOptionsOutOfRange) {
  EXPECT_THROW(LossScaler({.initial_scale = 0}), InputError);
  EXPECT_THROW(LossScaler({.initial_scale = INFINITY}), InputError);
  EXPECT_THROW(LossScaler({.initial_scale = 1, .min_scale = 2}), InputError);
  EXPECT_THROW(LossScaler({.growth_factor = 1}), InputError);
  EXPECT_THROW(LossScaler({.growth_interval = 0}), InputError);
  EXPECT_THROW(LossScaler({.backoff_factor = 1}), InputError);
  EXPECT_THROW(LossScaler({.hysteresis = 0}), InputError);
  EXPECT_THROW(LossScaler({.min_scale = NAN}), InputError);
  EXPECT_THROW(LossScaler({.fixed_scale = -1.0}), InputError);
  EXPECT_THROW(LossScaler({.patience = 0}), InputError);
}

}  // namespace
}  // namespace funicular::optim
