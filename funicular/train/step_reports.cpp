#include "funicular/train/step_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/train/records.h"

namespace funicular::train {

void StepReports::begin() {
  if (!training_.first() || training_.finished()) return;
  ProgressOptions shown;
  shown.unit = "steps";
  shown.start = static_cast<uint64_t>(training_.state.step);
  if (training_.options.progress)
    progress_.emplace("train", static_cast<uint64_t>(training_.max_steps), shown);
  if (training_.options.progress && training_.group.size() > 1) log::info("{}", describe_ranks());
  if (training_.options.progress) log::info("{}", describe_steps());
  for (const std::string& line : training_.draws.describe_corpora(training_.max_steps)) log::info("{}", line);
  if (const std::string warning = unusual_rate(training_.optimizer); !warning.empty())
    log::warning("{}", warning);
  if (const std::string warning = unfinished_warmup(
          training_.schedule, optim::peak_learning_rate(training_.optimizer), training_.max_steps);
      !warning.empty())
    log::warning("{}", warning);
  if (const int64_t steps = training_.options.batch_warmup_steps;
      steps >= training_.max_steps && steps > 0 &&
      training_.options.batch_warmup_start < training_.plan.batch)
    log::warning(
        "the batch warm-up takes {} steps and the run has {}: no batch reaches the full size; give a "
        "smaller --batch-warmup-steps or a larger --max-steps",
        steps, training_.max_steps);
}

/// " = 0.0001 × 4 (linear: a batch of 128 against 32)"; "" where the rate does not follow the batch.
std::string StepReports::describe_scaling() const {
  const optim::BatchRate& rate = training_.options.batch_rate;
  if (rate.rule == optim::RateScaling::none) return {};
  return fmt::format(" = {:g} × {:g} ({}: a batch of {} against {})", training_.base_rate,
                     optim::rate_factor(rate, training_.plan.batch),
                     optim::rate_scaling_names()[static_cast<size_t>(rate.rule)], training_.plan.batch,
                     rate.base_batch);
}

/// Describes who trains: "4 ranks on 2 hosts: ddp, connections, cpu".
std::string StepReports::describe_ranks() const {
  const std::vector<int> hosts = training_.group.hosts();
  const int count = *std::max_element(hosts.begin(), hosts.end()) + 1;
  const at::Device device = training_.model.device();
  return fmt::format("{} ranks on {} host{}: {}, {}, {}", hosts.size(), count, count == 1 ? "" : "s",
                     training_.strategy->name(), training_.group.carrier_name(device), device.str());
}

/// Describes batches and steps: "a batch of 32 sequences = 16 × 2, 4 steps per epoch, 12 in all, …".
std::string StepReports::describe_steps() const {
  const BatchPlan& plan = training_.plan;
  const int64_t ranks = training_.strategy->data_share().count;
  std::string batch = plan.batch_tokens > 0 ? fmt::format("a batch of at most {} tokens", plan.batch_tokens)
                                            : fmt::format("a batch of {} sequences", plan.batch);
  const bool divided = plan.batch_tokens == 0 && (plan.accumulation > 1 || ranks > 1);
  if (divided && plan.micro_batch * plan.accumulation * ranks == plan.batch) {
    batch += fmt::format(" = {}", plan.micro_batch);
    if (plan.accumulation > 1) batch += fmt::format(" × {} accumulated", plan.accumulation);
    if (ranks > 1) batch += fmt::format(" × {} ranks", ranks);
  }
  if (const TrainerOptions& o = training_.options; o.batch_warmup_steps > 0)
    batch += fmt::format(", which grows from {} in {} steps", o.batch_warmup_start, o.batch_warmup_steps);
  const char* const epoch = continues_epochs(training_.options) ? "in the first epoch" : "per epoch";
  const optim::Schedule& schedule = training_.schedule;
  const int64_t warmup = optim::warmup_steps(schedule, training_.max_steps);
  return fmt::format(
      "{}, {} steps {}, {} in all, learning rate {:g}{}, {}{}", batch, training_.steps_per_epoch, epoch,
      training_.max_steps, optim::peak_learning_rate(training_.optimizer), describe_scaling(),
      optim::schedule_name(schedule.kind), warmup > 0 ? fmt::format(", warm-up {} steps", warmup) : "");
}

void StepReports::end() {
  if (progress_) progress_->finish();
}

void StepReports::add_step(int64_t tokens, double seconds, double waited) {
  ++window_steps_;
  window_tokens_ += tokens;
  window_seconds_ += seconds;
  window_wait_ += waited;
}

void StepReports::tell(const parallel::StepResult& result) {
  const Callbacks& callbacks = training_.callbacks;
  const TrainingState& state = training_.state;
  if (callbacks.on_step && !(training_.meetings.overlapping() && callbacks.inspect))
    callbacks.on_step(state.step, result);
  const bool recorded = training_.due(training_.options.logging_steps);
  // Tokens of all ranks. Between records they are estimated: every share counts as large as this one.
  double tokens = static_cast<double>(window_tokens_ * training_.strategy->data_share().count);
  if (recorded) {
    tokens = sum_over_ranks(training_.group, static_cast<double>(window_tokens_));
    training_.meetings.share_losses(training_.state);
  }
  const double speed = window_seconds_ > 0 ? tokens / window_seconds_ : 0;  // 0: the clock was set back
  const int64_t memory = resident_memory();
  if (progress_)
    progress_->update(static_cast<uint64_t>(state.step),
                      fmt::format("{}{} tokens/s  {}B", shown_loss(result), short_number(speed),
                                  short_number(static_cast<double>(memory))),
                      evaluation_seconds_left());
  if (recorded) record(result, speed, memory);
}

void StepReports::record(const parallel::StepResult& result, double speed, int64_t memory) {
  TrainingState& state = training_.state;
  StepRecord record;
  record.step = state.step;
  record.epoch = training_.epoch(state.step);
  record.loss = state.loss_sum / static_cast<double>(std::max<int64_t>(1, state.loss_steps));
  record.learning_rate = training_.rate(state.step);
  record.gradient_norm = norm_over_ranks(result.gradient_norm);
  record.tokens_per_second = speed;
  record.step_seconds = window_seconds_ / static_cast<double>(window_steps_);
  record.wait_share = std::min(1.0, window_wait_ / std::max(window_seconds_, 1e-9));
  record.memory_bytes = memory;
  record.losses = result.losses;
  if (training_.meetings.overlapping()) {
    state.loss_watch.note_first(state.step, record.loss);
    recorded_loss_ = record.loss;
    record.losses.clear();  // some of the terms
  }
  record.loss_scale = training_.scaler ? training_.scaler->scale() : 0;
  record.skipped_steps = training_.skipped_steps();
  if (Records* const records = folder_.records()) records->add(record);
  if (training_.callbacks.on_log) training_.callbacks.on_log(record);
  require_sound(record.loss, "the training loss");
  state.loss_sum = 0;
  state.loss_steps = 0;
  window_steps_ = window_tokens_ = 0;
  window_seconds_ = window_wait_ = 0;
}

void StepReports::require_sound(double loss, const char* name) const {
  // Rank 0 knows the losses of asynchronous ranks.
  together(training_.group, [&] {
    if (training_.first())
      training_.state.loss_watch.require_sound(training_.state.step, loss, name,
                                               training_.options.diverged_at);
  });
}

void StepReports::require_success(double last_loss) const {
  const int64_t steps = training_.state.step;
  // A run that was already finished takes no step and has no last loss.
  if (steps > training_.result.resumed_from && !training_.meetings.is_asynchronous())
    require_sound(last_loss, "the loss of the last step");
  require_updates(steps, training_.skipped_steps(),
                  "a smaller --loss-scale or --initial-loss-scale, or --precision bf16, may help");
}

std::string unusual_rate(const optim::OptimizerSpec& spec) {
  const double rate = optim::peak_learning_rate(spec);
  if (!spec.kind().adaptive || !(rate > 1)) return "";
  return fmt::format(
      "the learning rate {} is far above what {} learns with (1e-5 to 1e-2), and will most likely destroy "
      "the weights; was the exponent's minus left out?",
      rate, optim::optimizer_name(spec));
}

/// If steps overlap, rank 0 knows only the losses of records.
std::string StepReports::shown_loss(const parallel::StepResult& result) const {
  if (training_.meetings.overlapping() && std::isnan(recorded_loss_)) return {};
  return fmt::format("loss {:.4f}  ", training_.meetings.overlapping() ? recorded_loss_ : result.loss);
}

/// Returns the norm over all stages, from the newest gradients of each stage.
double StepReports::norm_over_ranks(double norm) const {
  return training_.meetings.overlapping() ? std::sqrt(sum_over_ranks(training_.group, norm * norm)) : norm;
}

void StepReports::note_evaluation(double seconds) {
  evaluation_seconds_ = seconds;
  if (progress_) progress_->spent_beside(seconds);
}

/// Estimates the seconds of the remaining evaluations: each takes as long as the last one.
double StepReports::evaluation_seconds_left() const {
  const int64_t every = training_.evaluation_steps(), all = training_.max_steps;
  const int64_t last = all % every != 0;  // one at the end of the run, too
  return static_cast<double>(all / every - training_.state.step / every + last) * evaluation_seconds_;
}

std::string unfinished_warmup(const optim::Schedule& schedule, double peak, int64_t max_steps) {
  // A warm-up ratio below 1 can fill a run of few steps only by rounding, which needs no warning.
  const bool fills = schedule.warmup_steps >= max_steps || schedule.warmup_ratio >= 1;
  if (!optim::schedule_row(schedule.kind).warms_up || !fills) return "";
  const int64_t warmup = optim::warmup_steps(schedule, max_steps);
  return fmt::format(
      "the warm-up takes {} steps and the run has {}: the learning rate reaches {:g} and never its peak "
      "{:g}; "
      "give a smaller --warmup-steps, or --warmup-ratio 0.1",
      warmup, max_steps, optim::learning_rate(schedule, peak, max_steps - 1, max_steps), peak);
}

}  // namespace funicular::train
