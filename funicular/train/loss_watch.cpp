#include "funicular/train/loss_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

namespace funicular::train {

void LossWatch::note_first(int64_t step, double loss) {
  if (first_step_ > 0) return;
  first_step_ = step;
  first_ = loss;
}

std::string LossWatch::check(int64_t step, double loss, std::string_view name) {
  if (first_step_ == 0 || warned_step_ > 0) return "";
  if (!(loss > kGrowth * std::max(std::fabs(first_), kSmallestFirst))) return "";
  warned_step_ = step;
  return fmt::format(
      "{} is {:.6g} at step {}, and the loss of step {} was {:.6g}: the training diverges; a lower "
      "--learning-rate or a longer warm-up (--warmup-ratio) may help",
      name, loss, step, first_step_, first_);
}

OrderedJson LossWatch::to_json() const {
  return {{"first_step", first_step_}, {"first_loss", first_}, {"warned_step", warned_step_}};
}

LossWatch LossWatch::from_json(const Json& json, std::string_view origin) {
  LossWatch watch;
  if (json.is_null()) return watch;
  watch.first_step_ = json_get<int64_t>(json, "first_step", origin);
  watch.first_ = json_get<double>(json, "first_loss", origin);
  watch.warned_step_ = json_get<int64_t>(json, "warned_step", origin);
  return watch;
}

std::string unusual_rate(const optim::OptimizerSpec& spec) {
  // Of these an update of a weight is about as large as the rate (LAMB: the rate times the weights' norm).
  const bool adaptive = std::holds_alternative<optim::AdamW>(spec) ||
                        std::holds_alternative<optim::Adam>(spec) ||
                        std::holds_alternative<optim::Lamb>(spec);
  const double rate = optim::peak_learning_rate(spec);
  if (!adaptive || !(rate > 1)) return "";
  return fmt::format(
      "the learning rate {} is far above what {} learns with (1e-5 to 1e-2), and will most likely destroy "
      "the weights; was the exponent's minus left out?",
      rate, optim::optimizer_name(spec));
}

}  // namespace funicular::train
