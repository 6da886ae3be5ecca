#pragma once
// Learning-rate schedules as functions of the update number. Names and formulas are as in
// transformers/optimization.py, so that runs can be compared step by step.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/optim/setting.h"

namespace funicular::optim {

enum class ScheduleKind {
  linear,
  constant,
  constant_with_warmup,
  cosine,
  cosine_with_restarts,
  polynomial,
  inverse_sqrt,
  wsd
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::linear;
  int64_t warmup_steps = 0;  ///< updates during which the rate rises linearly from 0
  double warmup_ratio = 0;   ///< share of all updates, rounded up; give this or warmup_steps
  double cycles = 0;         ///< 0: the usual value (cosine 0.5, cosine_with_restarts 1)
  double power = 1;          ///< polynomial
  double final_rate = 1e-7;  ///< polynomial: the rate at the end, absolute; BatchRate multiplies it, too
  double decay_ratio = 0.2;  ///< wsd: share of all updates during which the rate falls, rounded up
  double decayed_rate = 0;   ///< wsd: as final_rate
};

/// An update after the warm-up.
struct SchedulePoint {
  double peak = 0;
  int64_t step = 0, warmup = 0, total = 0;  ///< 0-based number; updates of warm-up; all updates

  double length() const { return static_cast<double>(total - warmup > 1 ? total - warmup : 1); }
  /// Share of the updates after the warm-up that are done.
  double progress() const { return static_cast<double>(step - warmup) / length(); }
};

/// The description of a schedule.
struct ScheduleRow {
  ScheduleKind kind;
  std::string name;
  double (*rate)(const Schedule& schedule, const SchedulePoint& point);
  std::vector<Setting> settings{};  ///< fields of Schedule
  bool warms_up = true;

  /// The commands' default of a setting.
  SettingValue usual(const Setting& setting) const;
};

/// All schedules, in the order of --help.
const std::vector<ScheduleRow>& schedule_rows();
const ScheduleRow& schedule_row(ScheduleKind kind);
/// "linear", "cosine", …; throws InputError that suggests the nearest name.
ScheduleKind parse_schedule(const std::string& name);
const std::string& schedule_name(ScheduleKind kind);
/// The names of the rows that `wanted` accepts.
std::vector<std::string> schedule_names(bool (*wanted)(const ScheduleRow&) = [](const ScheduleRow&) {
  return true;
});

/// Throws InputError naming the first setting that is out of range.
void check(const Schedule& schedule);
/// Name, warm-up updates of a run of `total_steps`, and settings, for run.json.
OrderedJson describe(const Schedule& schedule, int64_t total_steps);
/// The description that a resumed run compares: "linear, 10 warm-up steps", and settings that differ from their
/// defaults.
std::string describe_in_words(const Schedule& schedule, int64_t total_steps);

/// Warm-up updates of a run of `total_steps`. Throws InputError if ratio and steps are both given or out of
/// range.
int64_t warmup_steps(const Schedule& schedule, int64_t total_steps);

/// The rate of the update with 0-based number `step` of a run of `total_steps`.
double learning_rate(const Schedule& schedule, double peak, int64_t step, int64_t total_steps);

}  // namespace funicular::optim
