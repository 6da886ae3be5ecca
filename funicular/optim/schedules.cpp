#include "funicular/optim/schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "funicular/base/error.h"

namespace funicular::optim {

namespace {

double linear_rate(const Schedule&, const SchedulePoint& at) {
  return at.peak * std::max(0.0, static_cast<double>(at.total - at.step) / at.length());
}

double constant_rate(const Schedule&, const SchedulePoint& at) {
  return at.peak;
}

double cosine_rate(const Schedule& schedule, const SchedulePoint& at) {
  const double cycles = schedule.cycles > 0 ? schedule.cycles : 0.5;
  return at.peak * std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * at.progress())));
}

double restarts_rate(const Schedule& schedule, const SchedulePoint& at) {
  if (at.progress() >= 1) return 0;
  const double cycles = schedule.cycles > 0 ? schedule.cycles : 1;
  return at.peak *
         std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * std::fmod(cycles * at.progress(), 1.0))));
}

double polynomial_rate(const Schedule& schedule, const SchedulePoint& at) {
  if (at.step > at.total) return schedule.final_rate;
  return (at.peak - schedule.final_rate) * std::pow(1 - at.progress(), schedule.power) + schedule.final_rate;
}

double inverse_root_rate(const Schedule&, const SchedulePoint& at) {
  const double timescale = at.warmup > 0 ? static_cast<double>(at.warmup) : 10000;
  return at.peak / std::sqrt((static_cast<double>(at.step - at.warmup) + timescale) / timescale);
}

/// Warm-up, stable, decay by 1 - sqrt: Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
/// Durations", NeurIPS 2024, equation 1.
double wsd_rate(const Schedule& schedule, const SchedulePoint& at) {
  const auto wanted = static_cast<int64_t>(std::ceil(static_cast<double>(at.total) * schedule.decay_ratio));
  const int64_t decay = std::min(wanted, at.total - at.warmup), begin = at.total - decay;
  if (at.step < begin) return at.peak;
  if (at.step >= at.total) return schedule.decayed_rate;
  const double left = 1 - std::sqrt(static_cast<double>(at.step - begin) / static_cast<double>(decay));
  return (at.peak - schedule.decayed_rate) * left + schedule.decayed_rate;
}

/// The rate at the end, in a field of the schedule that has it.
Setting end_setting(double Schedule::*place) {
  return field("final_rate", place).of_option("lr-end", "RATE", "learning rate after the last step");
}

Setting cycles_setting(double usual) {
  return field("cycles", &Schedule::cycles)
      .of_option("lr-cycles", "N", "waves of the cosine after the warm-up")
      .usually(usual);
}

}  // namespace

const std::vector<ScheduleRow>& schedule_rows() {
  using Kind = ScheduleKind;
  static const std::vector<ScheduleRow> rows = {
      {.kind = Kind::linear, .name = "linear", .rate = linear_rate},
      {.kind = Kind::constant, .name = "constant", .rate = constant_rate, .warms_up = false},
      {.kind = Kind::constant_with_warmup, .name = "constant_with_warmup", .rate = constant_rate},
      {.kind = Kind::cosine, .name = "cosine", .rate = cosine_rate, .settings = {cycles_setting(0.5)}},
      {.kind = Kind::cosine_with_restarts,
       .name = "cosine_with_restarts",
       .rate = restarts_rate,
       .settings = {cycles_setting(1)}},
      {.kind = Kind::polynomial,
       .name = "polynomial",
       .rate = polynomial_rate,
       .settings = {field("power", &Schedule::power)
                        .of_option("lr-power", "P", "power of the share of steps that are left"),
                    end_setting(&Schedule::final_rate)}},
      {.kind = Kind::inverse_sqrt, .name = "inverse_sqrt", .rate = inverse_root_rate},
      {.kind = Kind::wsd,
       .name = "wsd",
       .rate = wsd_rate,
       .settings = {field("decay_ratio", &Schedule::decay_ratio)
                        .of_option("decay-ratio", "SHARE", "share of all steps in which the rate falls")
                        .in({.most = 1}),
                    end_setting(&Schedule::decayed_rate)}}};
  return rows;
}

SettingValue ScheduleRow::usual(const Setting& setting) const {
  const Schedule fields;
  return setting.usual.value_or(setting.get(&fields));
}

const ScheduleRow& schedule_row(ScheduleKind kind) {
  return *std::find_if(schedule_rows().begin(), schedule_rows().end(),
                       [kind](const ScheduleRow& row) { return row.kind == kind; });
}

std::vector<std::string> schedule_names(bool (*wanted)(const ScheduleRow&)) {
  std::vector<std::string> names;
  for (const ScheduleRow& row : schedule_rows())
    if (wanted(row)) names.push_back(row.name);
  return names;
}

ScheduleKind parse_schedule(const std::string& name) {
  for (const ScheduleRow& row : schedule_rows())
    if (row.name == name) return row.kind;
  const std::vector<std::string> names = schedule_names();
  const std::string near = nearest(name, names.data(), names.data() + names.size());
  throw InputError("schedule", "unknown schedule \"{}\"{}; expected one of: {}", name,
                   near.empty() ? "" : ", did you mean \"" + near + "\"?", fmt::join(names, ", "));
}

const std::string& schedule_name(ScheduleKind kind) {
  return schedule_row(kind).name;
}

void check(const Schedule& schedule) {
  const ScheduleRow& row = schedule_row(schedule.kind);
  for (const Setting& setting : row.settings) setting.check(&schedule, "schedule", row.name);
}

OrderedJson describe(const Schedule& schedule, int64_t total_steps) {
  const ScheduleRow& row = schedule_row(schedule.kind);
  OrderedJson description = {{"name", row.name}, {"warmup_steps", warmup_steps(schedule, total_steps)}};
  for (const Setting& setting : row.settings) description[setting.name] = to_json(setting.get(&schedule));
  return description;
}

std::string describe_in_words(const Schedule& schedule, int64_t total_steps) {
  const ScheduleRow& row = schedule_row(schedule.kind);
  std::string words = fmt::format("{}, {} warm-up steps", row.name, warmup_steps(schedule, total_steps));
  const Schedule fields;
  for (const Setting& setting : row.settings) {
    const std::string value = to_text(setting.get(&schedule));
    if (value != to_text(row.usual(setting)) && value != to_text(setting.get(&fields)))
      words += fmt::format(", {} {}", setting.name, value);
  }
  return words;
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
  const ScheduleRow& row = schedule_row(schedule.kind);
  if (!row.warms_up) return row.rate(schedule, {.peak = peak, .step = step, .total = total_steps});
  const int64_t warmup = warmup_steps(schedule, total_steps);
  if (step < warmup)
    return peak * static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup));
  return row.rate(schedule, {peak, step, warmup, total_steps});
}

}  // namespace funicular::optim
