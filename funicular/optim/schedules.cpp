#include "funicular/optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "funicular/base/error.h"

namespace funicular::optim {

namespace {

/// In the order of ScheduleKind.
const std::vector<std::string> kNames = {
    "linear",     "constant",    "constant_with_warmup", "cosine", "cosine_with_restarts",
    "polynomial", "inverse_sqrt"};

}  // namespace

const std::vector<std::string>& schedule_names() {
  return kNames;
}

ScheduleKind parse_schedule(const std::string& name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found != kNames.end()) return static_cast<ScheduleKind>(found - kNames.begin());
  std::string all;
  for (const std::string& candidate : kNames) all += (all.empty() ? "" : ", ") + candidate;
  const std::string near = nearest(name, kNames.data(), kNames.data() + kNames.size());
  throw InputError("schedule", "unknown schedule \"{}\"{}; expected one of: {}", name,
                   near.empty() ? "" : ", did you mean \"" + near + "\"?", all);
}

std::string schedule_name(ScheduleKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

int64_t warmup_steps(const Schedule& schedule, int64_t total_steps) {
  if (schedule.warmup_steps < 0)
    throw InputError("schedule", "expected warm-up steps of at least 0, found {}", schedule.warmup_steps);
  if (!(schedule.warmup_ratio >= 0 && schedule.warmup_ratio <= 1))
    throw InputError("schedule", "expected a warm-up ratio in [0, 1], found {}", schedule.warmup_ratio);
  if (schedule.warmup_steps > 0 && schedule.warmup_ratio > 0)
    throw InputError("schedule",
                     "warm-up steps ({}) and a warm-up ratio ({}) are both given; give one of them",
                     schedule.warmup_steps, schedule.warmup_ratio);
  if (schedule.warmup_ratio > 0)
    return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * schedule.warmup_ratio));
  return schedule.warmup_steps;
}

double learning_rate(const Schedule& schedule, double peak, int64_t step, int64_t total_steps) {
  using Kind = ScheduleKind;
  if (schedule.kind == Kind::constant) return peak;
  const int64_t warmup = warmup_steps(schedule, total_steps);
  if (step < warmup)
    return peak * static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup));
  const double length = static_cast<double>(std::max<int64_t>(1, total_steps - warmup));
  const double progress = static_cast<double>(step - warmup) / length;
  switch (schedule.kind) {
    case Kind::linear:
      return peak * std::max(0.0, static_cast<double>(total_steps - step) / length);
    case Kind::cosine: {
      const double cycles = schedule.cycles > 0 ? schedule.cycles : 0.5;
      return peak * std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * progress)));
    }
    case Kind::cosine_with_restarts: {
      if (progress >= 1) return 0;
      const double cycles = schedule.cycles > 0 ? schedule.cycles : 1;
      return peak * std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * std::fmod(cycles * progress, 1.0))));
    }
    case Kind::polynomial:
      if (step > total_steps) return schedule.final_rate;
      return (peak - schedule.final_rate) * std::pow(1 - progress, schedule.power) + schedule.final_rate;
    case Kind::inverse_sqrt: {
      const double timescale = warmup > 0 ? static_cast<double>(warmup) : 10000;
      return peak / std::sqrt((static_cast<double>(step - warmup) + timescale) / timescale);
    }
    case Kind::constant:
    case Kind::constant_with_warmup:
      break;
  }
  return peak;
}

}  // namespace funicular::optim
