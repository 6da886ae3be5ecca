#include "funicular/train/meetings.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "funicular/base/log.h"

namespace funicular::train {
namespace {

/// Asynchronous ranks meet at least this often, to notice a signal.
constexpr int64_t kMeetingSteps = 100;

}  // namespace

double sum_over_ranks(const comm::Group& group, double value) {
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  group.all_reduce(sum);
  return sum.item<double>();
}

Meetings::Meetings(parallel::Strategy& strategy, const Every& every)
    : strategy_(strategy),
      asynchronous_(strategy.asynchronous()),
      overlapping_(strategy.overlapping()),
      every_(every) {}

bool Meetings::after(int64_t step) const {
  if (!asynchronous_ || step >= every_.last_step || step == first_step_ || step == next_agreement_)
    return true;
  const auto due = [step](int64_t every) { return every > 0 && step % every == 0; };
  // If steps overlap, a meeting empties the pipeline. Records do not need that, so ranks meet per epoch, not per
  // record.
  return due(kMeetingSteps) || due(overlapping_ ? every_.epoch : every_.records) || due(every_.saves) ||
         due(every_.evaluations);
}

bool Meetings::may_ask_after(int64_t step) const {
  return after(step) || (overlapping_ && every_.records > 0 && step % every_.records == 0);
}

int64_t Meetings::next_after(int64_t step) const {
  do ++step;
  while (!after(step));
  return step;
}

void Meetings::plan(int64_t done, parallel::StepSettings& settings) const {
  if (asynchronous_) settings.meeting = next_after(done);
}

void Meetings::begin_at(int64_t step, optim::LossScaler* scaler) {
  first_step_ = step;
  scaler_ = scaler;
  plan_agreement(step);
}

Meetings::Scaling Meetings::meet_after(int64_t step) {
  if (!asynchronous_ || !after(step)) return {};
  asynchronous_->meet();
  return agree_on_scale(step);
}

Meetings::Scaling Meetings::agree_on_scale(int64_t step) {
  if (!overlapping_ || !scaler_) return {};
  const parallel::Overlapping::LeftOut own = overlapping_->take_left_out();
  const at::Tensor left_out = at::zeros({step - agreed_step_}, at::kLong);
  for (const int64_t update : own.updates) left_out[update - 1 - agreed_step_] = 1;
  strategy_.group().all_reduce(left_out, comm::Reduction::maximum);
  const auto verdict = scaler_->update_after(left_out.numel(), left_out.sum().item<int64_t>());
  plan_agreement(step);
  return {verdict, own.gradient};
}

void Meetings::plan_agreement(int64_t step) {
  agreed_step_ = step;
  if (overlapping_ && scaler_) next_agreement_ = step + scaler_->steps_to_ask();
}

void Meetings::meet_early(int64_t step) {
  if (!asynchronous_ || after(step)) return;
  asynchronous_->meet();
  agree_on_scale(step);
  if (strategy_.group().rank() == 0)
    log::warning(
        "interrupted between two meetings, so the pipeline was emptied after step {}. The weights will "
        "differ from the weights of an uninterrupted run",
        step);
}

void Meetings::add_loss(const parallel::StepResult& step, bool took_part, TrainingState& state,
                        FitResult& result) const {
  if (asynchronous_ && !overlapping_ && !took_part) return;
  if (!overlapping_) state.loss_watch.note_first(state.step, step.loss);
  state.loss_sum += step.loss;
  // If steps overlap, all ranks have parts of the same batch's loss, so only rank 0 counts the step.
  state.loss_steps += !overlapping_ || strategy_.group().rank() == 0;
  result.loss = step.loss;
}

void Meetings::share_losses(TrainingState& state) const {
  if (!asynchronous_) return;
  const comm::Group group = strategy_.group();
  state.loss_sum = sum_over_ranks(group, state.loss_sum);
  state.loss_steps = static_cast<int64_t>(sum_over_ranks(group, static_cast<double>(state.loss_steps)));
  keep_shared_losses(state);
}

void Meetings::keep_shared_losses(TrainingState& state) const {
  if (!asynchronous_ || strategy_.group().rank() == 0) return;
  state.loss_sum = 0;
  state.loss_steps = 0;
}

void Meetings::end(FitResult& result) const {
  if (asynchronous_) result.staleness = asynchronous_->staleness();
  if (overlapping_) result.loss = sum_over_ranks(strategy_.group(), result.loss);
}

}  // namespace funicular::train
