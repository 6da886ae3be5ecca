#include "funicular/train/trainer.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/core/error_text.h"
#include "funicular/parallel/asynchronous.h"
#include "funicular/runtime/allocator.h"
#include "funicular/runtime/gpu_cards.h"
#include "funicular/runtime/product_cache.h"
#include "funicular/train/batch_vectors.h"
#include "funicular/train/batching.h"
#include "funicular/train/cut_check.h"
#include "funicular/train/evaluation_rounds.h"
#include "funicular/train/freezing.h"
#include "funicular/train/memory_advice.h"
#include "funicular/train/prefetch.h"
#include "funicular/train/run_folder.h"
#include "funicular/train/step_reports.h"
#include "funicular/train/training.h"

namespace funicular::train {

namespace {

using Clock = std::chrono::steady_clock;

void check_options(const TrainerOptions& options) {
  if (options.max_steps < 0 || !(options.num_train_epochs >= 0))
    throw InputError("trainer", "expected a positive number of steps or epochs, found {} steps and {} epochs",
                     options.max_steps, options.num_train_epochs);
  if (options.max_steps > 0 && options.num_train_epochs > 0)
    throw InputError("trainer", "{} steps and {} epochs are both given; give one of them", options.max_steps,
                     options.num_train_epochs);
  if (!(options.max_grad_norm >= 0))
    throw InputError("trainer", "expected a largest gradient norm of at least 0 (0: no clipping), found {}",
                     options.max_grad_norm);
  const auto at_least_0 = [](const char* name, int64_t value) {
    if (value < 0) throw InputError("trainer", "expected {} of at least 0, found {}", name, value);
  };
  at_least_0("logging steps", options.logging_steps);
  at_least_0("save steps", options.save_steps);
  at_least_0("a limit of saved checkpoints", options.save_total_limit);
  at_least_0("evaluation steps", options.eval_steps);
  at_least_0("a patience", options.patience);
  at_least_0("an evaluation batch size", options.eval_batch_size);
  at_least_0("loader threads", options.num_workers);
  check_batch_sizes(options);
  optim::check(options.batch_rate);
  optim::LossScaler{options.loss_scale};
  optim::warmup_steps(options.schedule, std::max<int64_t>(1, options.max_steps));
}

/// The loop of Trainer::fit.
class TrainingLoop {
 public:
  explicit TrainingLoop(Training& training)
      : training_(training),
        options_(training.options),
        strategy_(training.strategy.get()),
        state_(training.state),
        folder_(training),
        reports_(training, folder_),
        evaluations_(training, folder_, reports_) {}

  FitResult run();

 private:
  void attach();
  void train();
  void tell_left_out() const;
  void take_step(Prefetcher<GlobalBatch>& loader);
  void stop_if_interrupted();
  bool any_interrupted();
  void watch_updates();
  parallel::StepResult step(const GlobalBatch& batch);
  [[noreturn]] void fail(const parallel::StepResult& result) const;
  [[noreturn]] void fail_scaled(int64_t step, const std::string& gradient) const;

  Training& training_;
  const TrainerOptions& options_;
  parallel::Strategy* const strategy_;
  TrainingState& state_;
  RunFolder folder_;
  StepReports reports_;
  EvaluationRounds evaluations_;
};

void TrainingLoop::attach() {
  strategy_->use_batch_statistics(options_.batch_statistics);
  Model& model = training_.model;
  training_.run.parameters = model.parameter_count();
  for (const auto& parameter : model.parameters)
    if (parameter->trainable) training_.run.trainable_parameters += parameter->compute.numel();
  strategy_->attach(model, optim::make_optimizer(training_.optimizer),
                    {.compute = compute_type(options_.precision),
                     .accumulates = may_accumulate(training_.plan, training_.data)});
}

FitResult TrainingLoop::run() {
  const auto start = Clock::now();
  convert(training_.model, training_.floating);
  const Freezing freezing(training_.model, options_.trainable, options_.frozen);
  check_cuts(training_);
  check_batch_loss(training_.data, *strategy_);
  attach();
  folder_.resume();
  training_.meetings.begin_at(training_.result.resumed_from, training_.scaler ? &*training_.scaler : nullptr);
  watch_updates();
  trim_allocator();  // of what making, converting and loading the weights took
  folder_.begin();
  reports_.begin();
  tell_left_out();
  train();
  reports_.end();
  options_.whole_model_after ? strategy_->detach() : strategy_->leave();
  FitResult& result = training_.result;
  result.step = state_.step;
  result.stopped_early = training_.out_of_patience() && state_.step < training_.max_steps;
  result.best_step = state_.best_step;
  result.best_evaluation = state_.best_evaluation;
  result.skipped_steps = training_.skipped_steps();
  result.tokens = static_cast<int64_t>(sum_over_ranks(training_.group, static_cast<double>(result.tokens)));
  training_.meetings.end(result);
  result.seconds = seconds_since(start);
  folder_.end();
  return result;
}

/// Tells how many rows are in no batch of the first epoch.
void TrainingLoop::tell_left_out() const {
  const int64_t rows = training_.first() ? training_.draws.left_out() : 0, all = training_.data.size();
  if (rows == 0) return;
  const std::string text = fmt::format(
      "the first epoch leaves out {} of {} rows: each has a text that other rows of every batch have, too",
      rows, all);
  if (20 * rows > all)
    log::warning("{}; --no-distinct-batches trains on all rows", text);
  else
    log::info("{}", text);
}

void TrainingLoop::train() {
  const InterruptGuard guard;
  const RandomState random{options_.seed, /*training=*/true};
  Prefetcher<GlobalBatch> loader(state_.step, training_.max_steps, options_.num_workers,
                                 options_.num_workers + 1, [&, share = strategy_->data_share()](int64_t n) {
                                   return collate(training_.draws.batch(n), training_.data, training_.plan,
                                                  random, training_.floating, share);
                                 });
  try {
    evaluations_.evaluate();  // a run that was interrupted during an evaluation
    if (options_.save_steps > 0 && training_.finished()) folder_.save();
    while (!training_.finished()) {
      stop_if_interrupted();
      take_step(loader);
      if (state_.step == training_.max_steps) reports_.require_success(training_.result.loss);
      evaluations_.evaluate();
      if (options_.save_steps > 0 && (training_.due(options_.save_steps) || training_.finished()))
        folder_.save();
    }
    evaluations_.tell_early_stop();
    reports_.require_success(training_.result.loss);
    training_.require_sound_data();
    if (training_.leaves_files() && !folder_.model_is_saved()) folder_.save_model();
  } catch (const Interrupted&) {
    training_.result.interrupted = true;
    folder_.save();
    if (training_.first())
      log::info("interrupted at step {} of {}{}", state_.step, training_.max_steps,
                training_.leaves_files() ? "; the state is saved, so the run can be resumed" : "");
  }
}

void TrainingLoop::take_step(Prefetcher<GlobalBatch>& loader) {
  const auto start = Clock::now();
  GlobalBatch batch;
  if (training_.meetings.after(state_.step))
    folder_.or_save("the loader", [&] { batch = loader.next(); });
  else
    batch = loader.next();
  const double waited = seconds_since(start);
  if (const BatchLoss* const loss = training_.data.batch_loss())
    add_vector_gradients(*loss, batch, *strategy_);
  const parallel::StepResult result = step(batch);
  if (const Meetings::Scaling met = training_.meetings.meet_after(state_.step);
      met.verdict == optim::LossScaler::Verdict::exhausted)
    fail_scaled(state_.step, met.gradient);
  const int64_t tokens = strategy_->data_share().counted ? batch.tokens : 0;
  training_.result.tokens += tokens;
  reports_.add_step(tokens, seconds_since(start), waited);
  reports_.tell(result);
}

void TrainingLoop::stop_if_interrupted() {
  if (!training_.meetings.may_ask_after(state_.step) || !any_interrupted()) return;
  training_.meetings.meet_early(state_.step);
  throw Interrupted{};
}

/// If steps overlap, `inspect` is called for each step when all ranks have reached its update.
void TrainingLoop::watch_updates() {
  parallel::Overlapping* const overlapping = training_.meetings.overlapping();
  if (!overlapping || !training_.callbacks.inspect) return;
  overlapping->watch([this](int64_t update, bool updated, const parallel::StepResult& result) {
    if (!updated && training_.callbacks.on_step) training_.callbacks.on_step(update, result);
    training_.callbacks.inspect(update, updated, *strategy_);
  });
}

/// Whether a signal asked any rank to stop. Throws if any rank's data were found damaged.
bool TrainingLoop::any_interrupted() {
  enum : int64_t { none, interrupted, damaged };
  const bool is_damaged = training_.data.found_damaged() ||
                          (training_.evaluation.data && training_.evaluation.data->found_damaged());
  int64_t found = is_damaged ? damaged : interrupt_requested() != 0 ? interrupted : none;
  if (training_.group.size() > 1) {
    const at::Tensor worst = at::full({1}, found, at::kLong);
    training_.group.all_reduce(worst, comm::Reduction::maximum);
    found = worst.item<int64_t>();
  }
  if (found == damaged) training_.require_sound_data();
  return found != none;
}

parallel::StepResult TrainingLoop::step(const GlobalBatch& batch) {
  const bool overlapping = training_.meetings.overlapping() != nullptr;
  // If steps overlap, an update that one stage has left out still counts, because other stages have made it.
  const int64_t without_update = overlapping ? 0 : training_.skipped_steps();
  parallel::StepSettings settings{.learning_rate = training_.rate(state_.step + 1),
                                  .max_gradient_norm = options_.max_grad_norm,
                                  .update = state_.step + 1 - without_update,
                                  .loss_scale = training_.scaler ? training_.scaler->scale() : 1,
                                  .recompute = options_.recompute};
  if (const auto& observe = training_.callbacks.observe)
    settings.taps.observe = [&observe, step = state_.step + 1](std::string_view name,
                                                               const at::Tensor& value) {
      observe(step, name, value);
    };
  training_.meetings.plan(state_.step, settings);
  const bool inspected = training_.callbacks.inspect && !overlapping;
  if (inspected) settings.inspect = [&] { training_.callbacks.inspect(state_.step + 1, false, *strategy_); };
  const Counts counts = strategy_->global_counts(batch.counts);
  const parallel::StepResult result = strategy_->step(batch.micro_batches, counts, settings);
  if (inspected) training_.callbacks.inspect(state_.step + 1, true, *strategy_);
  if (result.losses.empty() && !batch.micro_batches.empty() && !strategy_->asynchronous())
    throw InputError(
        "loss", "step {}: nothing was added to the loss, so that nothing is learnt; expected LossSink::add",
        state_.step + 1);
  // A smaller scale cures gradients that overflow, not a loss that does.
  const bool overflow = training_.scaler && !result.finite && std::isfinite(result.loss);
  if (!result.finite && !overflow) fail(result);
  if (training_.scaler && !overlapping &&
      training_.scaler->update(overflow) == optim::LossScaler::Verdict::exhausted)
    fail_scaled(state_.step + 1, result.non_finite_gradient);
  ++state_.step;
  training_.meetings.add_loss(result, !batch.micro_batches.empty(), state_, training_.result);
  return result;
}

void TrainingLoop::fail(const parallel::StepResult& result) const {
  const std::string term = result.non_finite_loss.empty()
                               ? "every loss term is finite"
                               : "the loss term " + result.non_finite_loss + " is not finite";
  const std::string gradient =
      result.non_finite_gradient.empty()
          ? "the sum of squared gradients overflows"
          : "the first gradient that is not finite is that of " + result.non_finite_gradient;
  throw RunError("trainer",
                 "step {}: {}; {}. Loss {}, gradient norm {}. Nothing was updated or saved after step {}; a "
                 "lower learning rate, a longer "
                 "warm-up or a look at the data of this step may help",
                 state_.step + 1, term, gradient, result.loss, result.gradient_norm, state_.step);
}

void TrainingLoop::fail_scaled(int64_t step, const std::string& gradient) const {
  throw RunError(
      "trainer",
      "step {}: the gradients overflowed {} times in a row, the last time with the smallest allowed loss "
      "scale, {}. The first gradient that is not finite is {}. Nothing was saved after the last checkpoint; "
      "--precision bf16 needs no loss scale, or a lower learning rate may help",
      step, training_.scaler->overflows_in_a_row(), training_.scaler->scale(),
      gradient.empty() ? "another rank's" : "that of " + gradient);
}

}  // namespace

Trainer::Trainer(TrainerOptions options, StrategyFactory strategy, optim::OptimizerSpec optimizer)
    : options_(std::move(options)), strategy_(std::move(strategy)), optimizer_(std::move(optimizer)) {
  check_options(options_);
  optim::make_optimizer(optimizer_);
}

namespace {

std::string advice_for(const TrainingNeeds& needs, const at::Device& device, const std::string& detail) {
  if (device.is_cpu()) return memory_advice(needs, memory_limit(), detail);
  const std::vector<funicular::device::Card> cards = funicular::device::cards();
  const funicular::device::Card& card =
      cards.at(device.has_index() ? static_cast<size_t>(device.index()) : 0);
  return memory_advice_on_gpu(needs, card.name, static_cast<double>(card.bytes), detail);
}

}  // namespace

FitResult Trainer::fit(Model& model, const Source& train, const Evaluation& evaluation) {
  use_caching_allocator();
  limit_product_cache();
  const bool expects_folder = std::exchange(expects_folder_, false);
  TrainingNeeds needs{.precision = options_.precision, .optimizer = optimizer_};
  for (const auto& parameter : model.parameters)
    (parameter->trainable ? needs.parameters : needs.constants) += parameter->master.numel();
  try {
    std::unique_ptr<parallel::Strategy> strategy = strategy_();
    divide_as(*strategy, needs);
    Training training(options_, callbacks, optimizer_, std::move(strategy), model, train, evaluation);
    if (expects_folder && training.writes() && !callbacks.save_model)
      log::warning(
          "{}/model will hold only model.safetensors with the library's names, without config.json and "
          "tokeniser. For a folder that funicular predict and transformers load, set "
          "Trainer::callbacks.save_model to a function that calls model::save_folder",
          options_.output.string());
    return TrainingLoop(training).run();
  } catch (const InputError&) {
    // If the data are damaged, that is the error, not what came of it.
    train.require_sound();
    if (evaluation.data) evaluation.data->require_sound();
    throw;
  } catch (const fs::filesystem_error& error) {
    throw RunError("trainer", "{}", std::string(error.what()));
  } catch (const std::exception& error) {
    // Only LibTorch's own error for a tensor without room gets advice. An error of a loader or a callback passes
    // unchanged.
    if (!is_out_of_memory(error) || dynamic_cast<const std::bad_alloc*>(&error)) throw;
    throw RunError("memory", "{}", advice_for(needs, model.device(), error_text(error)));
  }
}

}  // namespace funicular::train
