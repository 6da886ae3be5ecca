#include "funicular/train/evaluation_rounds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"

namespace funicular::train {

namespace {

constexpr int64_t kRowsOfTokens = 512;  // of a forward pass at most, where the training counts tokens

/// Returns the micro-batches of an evaluation: eval_batch_size, else the training's. If the training counts tokens, at
/// most kRowsOfTokens rows.
BatchPlan cut_of_evaluation(const TrainerOptions& options, const BatchPlan& plan) {
  if (options.eval_batch_size > 0) return evaluation_plan(options.eval_batch_size, plan.tokens);
  if (plan.batch_tokens == 0) return evaluation_plan(plan.micro_batch, plan.tokens);
  return evaluation_plan(std::min(kRowsOfTokens, plan.micro_batch),
                         plan.tokens > 0 ? plan.tokens : plan.batch_tokens);
}

}  // namespace

bool EvaluationRounds::due() const {
  if (!training_.evaluation.data || state_.step == 0 || state_.evaluated_step == state_.step) return false;
  return state_.step == training_.max_steps || state_.step % training_.evaluation_steps() == 0;
}

void EvaluationRounds::evaluate() {
  if (!due()) return;
  const auto start = std::chrono::steady_clock::now();
  training_.strategy->share_buffers();
  training_.result.evaluation = measure();
  const std::map<std::string, double>& found = training_.result.evaluation;
  check(found);
  reports_.require_sound(found.at("loss"), "the loss of the evaluation");
  note(found);
  tell(found);
  reports_.note_evaluation(seconds_since(start));
  if (Records* const records = folder_.records())
    records->add_evaluation(state_.step, training_.epoch(state_.step), found);
  if (training_.callbacks.on_evaluate) training_.callbacks.on_evaluate(state_.step, found);
}

std::map<std::string, double> EvaluationRounds::measure() {
  const Evaluation& evaluation = training_.evaluation;
  parallel::Strategy& strategy = *training_.strategy;
  const BatchPlan plan = cut_of_evaluation(options_, training_.plan);
  std::map<std::string, double> found;
  if (training_.group.size() > 1) {
    try {
      found = run_evaluation(*evaluation.data, evaluation.metrics, plan, options_.seed, training_.floating,
                             strategy, [] { return interrupt_requested() != 0; });
    } catch (const SharedError& error) {  // all ranks know of it, and can still save together
      folder_.save();
      error.rethrow();
    }
    if (found.empty()) throw Interrupted{};
    return found;
  }
  const auto evaluate_batch = [&](std::span<const MicroBatch> batch) {
    if (interrupt_requested()) throw Interrupted{};  // it is done again after the resume
    return strategy.evaluate(batch);
  };
  folder_.or_save("the evaluation", [&] {
    found = run_evaluation(*evaluation.data, evaluation.metrics, plan, options_.seed, training_.floating,
                           evaluate_batch);
  });
  return found;
}

/// Saves before it throws: the training up to here is sound.
void EvaluationRounds::check(const std::map<std::string, double>& found) {
  if (!found.contains(options_.best_metric)) {
    folder_.save();
    std::vector<std::string> names;
    for (const auto& [name, value] : found) names.push_back(name);
    throw InputError("trainer", "the evaluation gives no metric named {}; it gives: {}", options_.best_metric,
                     fmt::join(names, ","));
  }
  const double loss = found.at("loss");
  if (std::isfinite(loss)) return;
  folder_.save();
  throw RunError("trainer",
                 "step {}: the loss of the evaluation is {}, though every weight is finite; a look at the "
                 "evaluation data may help",
                 state_.step, loss);
}

void EvaluationRounds::note(const std::map<std::string, double>& found) {
  state_.evaluated_step = state_.step;
  folder_.forget_saved();
  const double value = found.at(options_.best_metric);
  const auto best = state_.best_evaluation.find(options_.best_metric);
  const bool better =
      !std::isnan(value) &&
      (state_.best_step == 0 || best == state_.best_evaluation.end() || std::isnan(best->second) ||
       (options_.greater_is_better ? value > best->second : value < best->second));
  // A tie goes to the lower loss. Small evaluation sets make ties common, and the model of the first best
  // evaluation may have learned little.
  const auto best_loss = state_.best_evaluation.find("loss");
  const bool surer = !better && best != state_.best_evaluation.end() && value == best->second &&
                     best_loss != state_.best_evaluation.end() && found.at("loss") < best_loss->second;
  state_.evaluations_without_gain = better ? 0 : state_.evaluations_without_gain + 1;
  if (better || surer) {
    state_.best_step = state_.step;
    state_.best_evaluation = found;
    folder_.save_model();
  }
}

void EvaluationRounds::tell(const std::map<std::string, double>& found) const {
  if (!training_.first() || !options_.progress) return;
  std::vector<std::string> values;
  for (const auto& [name, value] : found) values.push_back(fmt::format("{} {:.4f}", name, value));
  const std::string& metric = options_.best_metric;
  const auto best = state_.best_evaluation.find(metric);
  log::info("evaluation at step {} of {}: {}; {}", state_.step, training_.max_steps, fmt::join(values, ", "),
            state_.best_step == state_.step ? "the best so far"
            : best == state_.best_evaluation.end()
                ? "no best one yet"
                : fmt::format("best {} so far {:.4f}, at step {}", metric, best->second, state_.best_step));
}

void EvaluationRounds::tell_early_stop() const {
  if (!training_.first() || !training_.out_of_patience() || state_.step >= training_.max_steps) return;
  const auto best = state_.best_evaluation.find(options_.best_metric);
  log::info(
      "stopped early, at step {} of {}: {} has not improved in {} evaluations (--patience {}){}", state_.step,
      training_.max_steps, options_.best_metric, state_.evaluations_without_gain, options_.patience,
      best == state_.best_evaluation.end()
          ? ""
          : fmt::format("; the best is {:.4f}, the model that of step {}", best->second, state_.best_step));
}

}  // namespace funicular::train
