#include "funicular/core/loss_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"

namespace funicular {

void LossWatch::note_first(int64_t step, double loss) {
  if (first_) return;
  first_step_ = step;
  first_ = loss;
}

void LossWatch::require_sound(int64_t step, double loss, std::string_view name, double growth) const {
  // A training by epochs (word vectors) has no warm-up.
  const std::string remedy = fmt::format("a lower --learning-rate{} may help",
                                         unit_ == "step" ? " or a longer warm-up (--warmup-ratio)" : "");
  if (!std::isfinite(loss))
    throw RunError("loss", "{} is {} at {} {}: it is not finite; {}", name, loss, unit_, step, remedy);
  if (!first_ || !(loss > growth * std::max(std::fabs(*first_), kSmallestFirst))) return;
  throw RunError("loss", "{} is {:.6g} at {} {}, and the loss of {} {} was {:.6g}: the training diverges; {}",
                 name, loss, unit_, step, unit_, first_step_, *first_, remedy);
}

OrderedJson LossWatch::to_json() const {
  return {{"first_step", first_step_}, {"first_loss", first_.value_or(0)}};
}

LossWatch LossWatch::from_json(const Json& json, std::string_view origin) {
  LossWatch watch;
  if (json.is_null()) return watch;
  watch.first_step_ = json_get<int64_t>(json, "first_step", origin);
  const auto first = json_get<double>(json, "first_loss", origin);
  if (watch.first_step_ > 0) watch.first_ = first;
  return watch;
}

void require_updates(int64_t steps, int64_t skipped, std::string_view remedy) {
  if (steps == 0 || skipped < steps) return;
  throw RunError("loss", "all {} steps were skipped, so that no weight was updated; {}", steps, remedy);
}

}  // namespace funicular
