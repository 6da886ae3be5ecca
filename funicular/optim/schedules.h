#pragma once
// Learning-rate schedules, as functions of the update number; the names and formulas are those of
// transformers/optimization.py, so that a run can be compared step by step.

#include <cstdint>
#include <string>
#include <vector>

namespace funicular::optim {

enum class ScheduleKind {
  linear,
  constant,
  constant_with_warmup,
  cosine,
  cosine_with_restarts,
  polynomial,
  inverse_sqrt
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::linear;
  int64_t warmup_steps = 0;  ///< updates during which the rate rises linearly from 0
  double warmup_ratio = 0;   ///< share of all updates, rounded up; give this or warmup_steps
  double cycles = 0;         ///< 0: the usual value (cosine 0.5, cosine_with_restarts 1)
  double power = 1;          ///< polynomial
  double final_rate = 1e-7;  ///< polynomial: the rate at the end, absolute
};

/// "linear", "cosine", …; throws InputError that suggests the nearest name.
ScheduleKind parse_schedule(const std::string& name);
std::string schedule_name(ScheduleKind kind);
const std::vector<std::string>& schedule_names();

/// Warm-up updates of a run of `total_steps`. Throws InputError if ratio and steps are both given or out of
/// range.
int64_t warmup_steps(const Schedule& schedule, int64_t total_steps);

/// The rate of the update with 0-based number `step` of a run of `total_steps`.
double learning_rate(const Schedule& schedule, double peak, int64_t step, int64_t total_steps);

}  // namespace funicular::optim
