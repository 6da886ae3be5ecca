#include "funicular/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"

namespace funicular::optim {

namespace {

void check(bool good, const char* name, const char* expected, double found) {
  if (!good) throw InputError("loss scale", "expected {} {}, found {}", name, expected, found);
}

bool positive(double value) {
  return std::isfinite(value) && value > 0;
}

void check(const LossScalerOptions& options) {
  if (options.fixed_scale)
    check(positive(*options.fixed_scale), "the static scale", "above 0", *options.fixed_scale);
  check(positive(options.min_scale), "min_scale", "above 0", options.min_scale);
  check(options.max_scale >= options.min_scale && std::isfinite(options.max_scale), "max_scale",
        "of at least min_scale", options.max_scale);
  if (!(options.initial_scale >= options.min_scale && options.initial_scale <= options.max_scale))
    throw InputError(
        "loss scale",
        "expected initial_scale (--initial-loss-scale) from min_scale (--min-loss-scale), {}, to {}, "
        "found {}",
        options.min_scale, options.max_scale, options.initial_scale);
  check(options.growth_factor > 1 && std::isfinite(options.growth_factor), "growth_factor", "above 1",
        options.growth_factor);
  check(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor", "between 0 and 1",
        options.backoff_factor);
  const auto at_least_one = [](const char* name, int64_t value) {
    check(value >= 1, name, "of at least 1", static_cast<double>(value));
  };
  at_least_one("growth_interval", options.growth_interval);
  at_least_one("hysteresis", options.hysteresis);
  at_least_one("patience", options.patience);
}

}  // namespace

LossScaler::LossScaler(LossScalerOptions options) : options_(options) {
  check(options_);
  state_.scale = options_.fixed_scale.value_or(options_.initial_scale);
  state_.hysteresis_left = options_.hysteresis;
}

LossScaler::Verdict LossScaler::update(bool overflow) {
  if (!overflow) {
    state_.in_a_row = 0;
    if (++state_.good_steps >= options_.growth_interval) grow();
    return Verdict::update;
  }
  const bool lowest = options_.fixed_scale || state_.scale <= options_.min_scale;
  ++state_.skipped;
  ++state_.in_a_row;
  state_.good_steps = 0;
  back_off();
  return lowest && state_.in_a_row >= options_.patience ? Verdict::exhausted : Verdict::skip;
}

LossScaler::Verdict LossScaler::update_after(int64_t steps, int64_t overflows) {
  if (overflows > 0) {
    state_.skipped += overflows - 1;
    return update(true);
  }
  for (int64_t step = 0; step < steps; ++step) update(false);
  return Verdict::update;
}

int64_t LossScaler::steps_to_ask() const {
  // A resumed run may have a shorter interval than its good steps already are.
  return std::clamp<int64_t>(options_.growth_interval - state_.good_steps, 1,
                             std::max<int64_t>(state_.good_steps, 1));
}

void LossScaler::back_off() {
  if (options_.fixed_scale) return;
  state_.hysteresis_left = std::max<int64_t>(state_.hysteresis_left - 1, 0);
  if (state_.hysteresis_left == 0)
    state_.scale = std::max(state_.scale * options_.backoff_factor, options_.min_scale);
}

void LossScaler::grow() {
  state_.good_steps = 0;
  if (options_.fixed_scale) return;
  state_.hysteresis_left = options_.hysteresis;
  state_.scale = std::min(state_.scale * options_.growth_factor, options_.max_scale);
}

OrderedJson LossScaler::state() const {
  return {{"scale", state_.scale},
          {"good_steps", state_.good_steps},
          {"hysteresis_left", state_.hysteresis_left},
          {"skipped_steps", state_.skipped},
          {"overflows_in_a_row", state_.in_a_row}};
}

void LossScaler::restore(const Json& json, std::string_view origin) {
  State state;
  const auto count = [&](const char* key) {
    const auto value = json_get<int64_t>(json, key, origin);
    if (value < 0)
      throw InputError("loss scale", "{}: expected {} of at least 0, found {}", origin, key, value);
    return value;
  };
  state.scale = json_get<double>(json, "scale", origin);
  if (!positive(state.scale))
    throw InputError("loss scale", "{}: expected a scale above 0, found {}", origin, state.scale);
  state.good_steps = count("good_steps");
  state.hysteresis_left = std::min(count("hysteresis_left"), options_.hysteresis);
  state.skipped = count("skipped_steps");
  state.in_a_row = count("overflows_in_a_row");
  state.scale =
      options_.fixed_scale.value_or(std::clamp(state.scale, options_.min_scale, options_.max_scale));
  state_ = state;
}

}  // namespace funicular::optim
