#include "funicular/train/trainer.h"

#include <ATen/ops/full.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <optional>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/progress.h"
#include "funicular/base/temporary.h"
#include "funicular/comm/together.h"
#include "funicular/core/error_text.h"
#include "funicular/parallel/overlapping.h"
#include "funicular/runtime/allocator.h"
#include "funicular/runtime/product_cache.h"
#include "funicular/train/batching.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/disk_space.h"
#include "funicular/train/freezing.h"
#include "funicular/train/loss_watch.h"
#include "funicular/train/memory_advice.h"
#include "funicular/train/mixture.h"
#include "funicular/train/prefetch.h"
#include "funicular/train/records.h"
#include "funicular/train/resume.h"
#include "funicular/train/run_file.h"
#include "funicular/train/saved_model.h"

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
  optim::LossScaler{options.loss_scale};
  optim::warmup_steps(options.schedule, std::max<int64_t>(1, options.max_steps));
}

struct Interrupted {};

/// How often asynchronous ranks meet at least: to notice a signal.
constexpr int64_t kMeetingSteps = 100;

int64_t steps_of(const TrainerOptions& options, int64_t steps_per_epoch) {
  if (options.max_steps > 0) return options.max_steps;
  const double epochs = options.num_train_epochs > 0 ? options.num_train_epochs : 3;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(epochs * static_cast<double>(steps_per_epoch))));
}

/// One call of Trainer::fit.
class Fit {
 public:
  Fit(const TrainerOptions& options, const Callbacks& callbacks, const optim::OptimizerSpec& spec,
      std::unique_ptr<parallel::Strategy> strategy, Model& model, const Source& train,
      const Evaluation& evaluation)
      : options_(options),
        callbacks_(callbacks),
        spec_(spec),
        strategy_(std::move(strategy)),
        overlapping_(dynamic_cast<parallel::Overlapping*>(strategy_.get())),
        group_(strategy_->group()),
        model_(model),
        train_(train),
        evaluation_(evaluation),
        plan_(plan_batches(options, strategy_->parts(), strategy_->pieces())),
        draws_(train, {.seed = options.seed,
                       .shuffle = options.shuffle,
                       .batch_size = plan_.batch,
                       .drop_last = options.drop_last}),
        floating_(master_type(options.precision)),
        max_steps_(steps_of(options, draws_.batches_per_epoch())),
        run_{options,
             spec,
             model,
             train,
             evaluation,
             plan_,
             max_steps_,
             draws_.batches_per_epoch(),
             group_.size(),
             strategy_->name(),
             draws_.corpora(max_steps_)} {
    optim::warmup_steps(options.schedule, max_steps_);
    if (options.precision == Precision::fp16) scaler_.emplace(options.loss_scale);
  }

  FitResult run();

 private:
  bool first() const { return group_.rank() == 0; }
  /// Whether the run leaves files at all; rank 0 writes them, of checkpoints each rank its part.
  bool leaves_files() const { return !options_.output.empty(); }
  bool writes() const { return leaves_files() && first(); }
  fs::path checkpoints() const { return options_.output / "checkpoints"; }
  double epoch(int64_t step) const {
    return static_cast<double>(step) / static_cast<double>(draws_.batches_per_epoch());
  }
  double rate(int64_t step) const {  // step is 1-based
    return optim::learning_rate(options_.schedule, optim::peak_learning_rate(spec_), step - 1, max_steps_);
  }
  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }
  bool evaluation_due() const {
    if (!evaluation_.data || state_.step == 0 || state_.evaluated_step == state_.step) return false;
    return state_.step == max_steps_ ||
           state_.step % (options_.eval_steps > 0 ? options_.eval_steps : draws_.batches_per_epoch()) == 0;
  }
  bool out_of_patience() const {
    return options_.patience > 0 && state_.evaluations_without_gain >= options_.patience;
  }
  bool finished() const { return state_.step >= max_steps_ || out_of_patience(); }
  /// Whether the ranks are together after this step: always, if the strategy is synchronous; otherwise where
  /// one of them has to do something with the others.
  bool meet_after(int64_t step) const;
  int64_t next_meeting() const;
  void stop_if_interrupted(bool met);
  void watch_updates();

  void resume();
  void share_state();
  SpaceNeeds needs() const;
  void take_folder(std::optional<RunLock>& lock);
  void train();
  bool model_is_saved();
  void or_save(const char* what, const std::function<void()>& read);
  bool any_interrupted();
  void require_sound_data();
  void write_outcome(const OrderedJson& earlier);
  parallel::StepResult step(const GlobalBatch& batch);
  [[noreturn]] void fail(const parallel::StepResult& result) const;
  [[noreturn]] void fail_scaled(const parallel::StepResult& result) const;
  int64_t skipped_steps() const { return scaler_ ? scaler_->skipped_steps() : 0; }
  void log_step(const parallel::StepResult& result);
  void watch(double loss, const char* name);
  double sum_over_ranks(double value) const;
  std::string shown_loss(const parallel::StepResult& result) const;
  double norm_over_ranks(double norm) const;
  void share_losses();
  void keep_shared_losses();
  void evaluate();
  void check_evaluation();
  void note_evaluation();
  void tell_evaluation() const;
  void tell_early_stop() const;
  double evaluation_seconds_left() const;
  void save_model();
  void save();

  const TrainerOptions& options_;
  const Callbacks& callbacks_;
  const optim::OptimizerSpec& spec_;
  std::unique_ptr<parallel::Strategy> strategy_;
  parallel::Overlapping* const overlapping_;  ///< the strategy, if its steps overlap
  const comm::Group group_;
  Model& model_;
  const Source& train_;
  const Evaluation& evaluation_;
  BatchPlan plan_;
  Draws draws_;
  at::ScalarType floating_;
  int64_t max_steps_;
  Run run_;

  std::unique_ptr<Records> records_;
  std::optional<Progress> progress_;
  std::optional<optim::LossScaler> scaler_;  ///< of fp16
  TrainingState state_;
  FitResult result_;
  bool data_is_sound_ = false;  ///< whether all ranks know that nothing in their data is damaged
  int64_t saved_step_ = -1;  ///< of the checkpoint in the run's folder that holds the present state; -1: none

  // Since the last record.
  int64_t window_steps_ = 0, window_tokens_ = 0;
  double window_seconds_ = 0, window_wait_ = 0;
  double recorded_loss_ = NAN;     ///< in the last record
  double evaluation_seconds_ = 0;  ///< of the last evaluation, the best model's saving included
};

bool Fit::meet_after(int64_t step) const {
  const auto due_at = [&](int64_t every) { return every > 0 && step % every == 0; };
  if (strategy_->synchronous() || step >= max_steps_ || step == result_.resumed_from) return true;
  const int64_t evaluations = options_.eval_steps > 0 ? options_.eval_steps : draws_.batches_per_epoch();
  // Where steps overlap a meeting empties the pipeline, which records need not.
  const bool beside = overlapping_ ? due_at(draws_.batches_per_epoch()) : due_at(options_.logging_steps);
  return due_at(kMeetingSteps) || beside || due_at(options_.save_steps) ||
         (evaluation_.data && due_at(evaluations));
}

int64_t Fit::next_meeting() const {
  int64_t step = state_.step + 1;
  while (!meet_after(step)) ++step;
  return step;
}

void Fit::resume() {
  state_.identity = identity_of(run_);
  state_.settings = settings_of(run_);
  // Saving empties the pipeline, after which gradients are of the newest weights.
  if (overlapping_)
    state_.settings["pipeline"] =
        fmt::format("{}, saved every {} steps", overlapping_->versions(), options_.save_steps);
  if (!leaves_files() && (options_.resume == "auto" || options_.resume == "never")) return;
  const fs::path checkpoint =
      from_first(group_, [&] { return find_checkpoint(options_.output, options_.resume).string(); });
  if (checkpoint.empty()) {
    if (writes() && fs::exists(options_.output / "run.json"))
      log::warning(
          "{} holds the records of an earlier run, but no checkpoint: this run starts anew, and its records "
          "take "
          "their place",
          options_.output.string());
    return;
  }
  TrainingState saved;
  together(group_, [&] {
    saved = read_state(checkpoint);
    const bool is_finished = saved.step >= max_steps_ ||
                             (options_.patience > 0 && saved.evaluations_without_gain >= options_.patience);
    // A checkpoint that was named is gone back to on purpose.
    const bool goes_on = !is_finished || options_.resume != "auto";
    check_resumable(saved, state_.identity, state_.settings, checkpoint, goes_on);
    if (scaler_) scaler_->restore(Json(saved.loss_scaler), (checkpoint / "state.json").string());
    if (saved.drawn != draws_.drawn(saved.step))
      throw InputError(
          "trainer",
          "{} has drawn {} sequences of its corpora, and this program would have drawn {}: it was made by "
          "another version, which is to go on with it",
          checkpoint.string(), fmt::join(saved.drawn, ", "), fmt::join(draws_.drawn(saved.step), ", "));
  });
  read_tensors(*strategy_, checkpoint);
  forget_other_evaluation(saved, state_.settings);
  saved.identity = std::move(state_.identity);
  saved.settings = std::move(state_.settings);
  state_ = std::move(saved);
  result_.resumed_from = state_.step;
  keep_shared_losses();
  if (leaves_files()) {
    std::error_code error;
    if (fs::equivalent(checkpoint.parent_path(), checkpoints(), error)) saved_step_ = state_.step;
    together(group_, [&] {
      if (!first()) return;
      set_newer_aside(options_.output, checkpoint, state_.step);
      take_best_model(options_.output, checkpoint, state_);
      // A process that was killed behind a save may have left one too many.
      if (saved_step_ == state_.step)
        prune_checkpoints(checkpoints(), options_.save_total_limit, state_.best_step);
    });
    share_state();
  }
  if (first()) log::info("resumed from {} at step {} of {}", checkpoint.string(), state_.step, max_steps_);
}

/// Rank 0 may have forgotten the best model, where it is lost.
void Fit::share_state() {
  if (group_.size() == 1) return;
  const std::string text = from_first(group_, [&] { return state_.to_json().dump(); });
  state_ = TrainingState::from_json(parse_json(text, "rank 0's state"), "rank 0's state");
}

void Fit::take_folder(std::optional<RunLock>& lock) {
  together(group_, [&] {
    if (!writes()) return;
    check_saved_model(options_.output);
    make_directories(options_.output);
    lock.emplace(options_.output);
    recover_leftovers(checkpoints());
    recover_saved_model(options_.output);
    for (const char* file : {"run.json", "metrics.jsonl"})
      for (const fs::path& leftover : temporaries_of(options_.output / file)) fs::remove(leftover);
  });
}

SpaceNeeds Fit::needs() const {
  const int64_t saves = options_.save_steps > 0 ? max_steps_ / options_.save_steps + 1 : 1;
  const int64_t kept = options_.save_total_limit > 0 ? std::min(options_.save_total_limit, saves) : saves;
  return space_needs(run_.parameters, static_cast<int64_t>(c10::elementSize(floating_)), spec_,
                     kept + 1 + (evaluation_.data != nullptr));
}

FitResult Fit::run() {
  const auto start = Clock::now();
  std::optional<RunLock> lock;
  take_folder(lock);
  convert(model_, floating_);
  const Freezing freezing(model_, options_.trainable, options_.frozen);
  run_.parameters = model_.parameter_count();
  for (const auto& parameter : model_.parameters)
    if (parameter->trainable) run_.trainable_parameters += parameter->compute.numel();
  strategy_->attach(
      model_, optim::make_optimizer(spec_),
      {.compute = compute_type(options_.precision), .accumulates = may_accumulate(plan_, train_)});
  resume();
  watch_updates();
  trim_allocator();  // of what making, converting and loading the weights took
  together(group_, [&] {
    if (writes() && !finished()) check_space(needs(), options_.output);
  });
  const OrderedJson earlier = writes() ? finished_result(options_.output, state_.step) : OrderedJson();
  together(group_, [&] {
    if (!writes()) return;
    if (earlier.is_null() || !finished()) write_run_file(run_, result_.resumed_from, OrderedJson());
    records_ = std::make_unique<Records>(options_.output, state_.step, state_.evaluated_step);
  });
  if (first() && finished() && !earlier.is_null())
    log::info("the run in {} is finished already, at step {}; another --output begins a new one",
              options_.output.string(), state_.step);
  ProgressOptions shown;
  shown.unit = "steps";
  shown.start = static_cast<uint64_t>(state_.step);
  if (options_.progress && first() && !finished())
    progress_.emplace("train", static_cast<uint64_t>(max_steps_), shown);
  if (first() && !finished())
    for (const std::string& line : draws_.describe_corpora(max_steps_)) log::info("{}", line);
  if (const std::string warning = unusual_rate(spec_); first() && !finished() && !warning.empty())
    log::warning("{}", warning);
  train();
  if (progress_) progress_->finish();
  strategy_->detach();
  result_.staleness = strategy_->staleness();
  result_.step = state_.step;
  result_.stopped_early = out_of_patience() && state_.step < max_steps_;
  result_.best_step = state_.best_step;
  result_.best_evaluation = state_.best_evaluation;
  result_.skipped_steps = skipped_steps();
  result_.tokens = static_cast<int64_t>(sum_over_ranks(static_cast<double>(result_.tokens)));
  if (overlapping_) result_.loss = sum_over_ranks(result_.loss);
  result_.seconds = seconds_since(start);
  together(group_, [&] { write_outcome(earlier); });
  return result_;
}

void Fit::write_outcome(const OrderedJson& earlier) {
  const bool did_nothing = !earlier.is_null() && result_.evaluation.empty() &&
                           result_.step == result_.resumed_from &&
                           earlier.value("best_step", OrderedJson()) == result_.best_step;
  if (!writes() || did_nothing) return;
  OrderedJson result = {{"step", result_.step},
                        {"interrupted", result_.interrupted},
                        {"stopped_early", result_.stopped_early},
                        {"loss", result_.loss},
                        {"best_step", result_.best_step},
                        {"best_evaluation", result_.best_evaluation},
                        {"skipped_steps", result_.skipped_steps},
                        {"tokens", result_.tokens},
                        {"seconds", result_.seconds}};
  if (!strategy_->synchronous()) result["staleness"] = result_.staleness;
  write_run_file(run_, result_.resumed_from, result);
}

void Fit::train() {
  const InterruptGuard guard;
  const RandomState random{options_.seed, /*training=*/true};
  Prefetcher<GlobalBatch> loader(state_.step, max_steps_, options_.num_workers, options_.num_workers + 1,
                                 [&, share = strategy_->data_share()](int64_t n) {
                                   return collate(draws_.batch(n), train_, plan_, random, floating_, share);
                                 });
  try {
    evaluate();  // a run that was interrupted during an evaluation
    if (options_.save_steps > 0 && finished()) save();
    while (!finished()) {
      const bool met = meet_after(state_.step);
      stop_if_interrupted(met);
      const auto start = Clock::now();
      GlobalBatch batch;
      if (met)
        or_save("the loader", [&] { batch = loader.next(); });
      else
        batch = loader.next();
      window_wait_ += seconds_since(start);
      const parallel::StepResult result = step(batch);
      if (!strategy_->synchronous() && meet_after(state_.step)) strategy_->meet();
      window_seconds_ += seconds_since(start);
      log_step(result);
      evaluate();
      if (options_.save_steps > 0 && (due(options_.save_steps) || finished())) save();
    }
    tell_early_stop();
    require_sound_data();
    if (leaves_files() && !model_is_saved()) save_model();
  } catch (const Interrupted&) {
    result_.interrupted = true;
    save();
    if (first())
      log::info("interrupted at step {} of {}{}", state_.step, max_steps_,
                leaves_files() ? "; the state is saved, resume to go on" : "");
  }
}

/// Whether rank 0 finds the model that the run shall leave.
bool Fit::model_is_saved() {
  return from_first(group_, [&] {
           return saved_model_step(options_.output) == (state_.best_step > 0 ? state_.best_step : state_.step)
                      ? std::string("yes")
                      : std::string();
         }) == "yes";
}

/// Between meetings ranks whose steps overlap ask each other where they make a record.
void Fit::stop_if_interrupted(bool met) {
  if (!met && !(overlapping_ && due(options_.logging_steps))) return;
  if (!any_interrupted()) return;
  if (!met) {
    strategy_->meet();
    if (first())
      log::warning(
          "interrupted between two meetings: the pipeline was emptied after step {}, which it is not in a "
          "run that "
          "goes on; the weights will differ from that one's",
          state_.step);
  }
  throw Interrupted{};
}

/// Where steps overlap, callbacks that compare hear of each step when all ranks are at its update.
void Fit::watch_updates() {
  if (!overlapping_ || !callbacks_.inspect) return;
  overlapping_->watch([this](int64_t update, bool updated, const parallel::StepResult& result) {
    if (!updated && callbacks_.on_step) callbacks_.on_step(update, result);
    callbacks_.inspect(update, updated, *strategy_);
  });
}

/// Whether a signal asked any rank to stop. Throws where any rank's data were found damaged.
bool Fit::any_interrupted() {
  enum : int64_t { none, interrupted, damaged };
  const bool is_damaged = train_.found_damaged() || (evaluation_.data && evaluation_.data->found_damaged());
  int64_t found = is_damaged ? damaged : interrupt_requested() != 0 ? interrupted : none;
  if (group_.size() > 1) {
    const at::Tensor worst = at::full({1}, found, at::kLong);
    group_.all_reduce(worst, comm::Reduction::maximum);
    found = worst.item<int64_t>();
  }
  if (found == damaged) require_sound_data();
  return found != none;
}

/// Before anything is kept that came of the data. May wait until all of them have been read once.
void Fit::require_sound_data() {
  if (data_is_sound_) return;
  try {
    together(group_, [&] {
      train_.require_sound();
      if (evaluation_.data) evaluation_.data->require_sound();
    });
  } catch (const InputError&) {
    if (first() && leaves_files())
      log::error("the data are damaged: nothing was saved that came of them, after step {}",
                 result_.resumed_from);
    throw;
  }
  data_is_sound_ = true;
}

/// Calls `read` on all ranks. Saves before it throws what went wrong with the data: the training up to here
/// is sound.
void Fit::or_save(const char* what, const std::function<void()>& read) {
  try {
    together(group_, read);
  } catch (const Interrupted&) {
    throw;
  } catch (...) {
    save();
    if (first())
      log::error("{} failed after step {}{}", what, state_.step,
                 leaves_files() ? ", whose state is saved" : "");
    throw;
  }
}

parallel::StepResult Fit::step(const GlobalBatch& batch) {
  parallel::StepSettings settings{.learning_rate = rate(state_.step + 1),
                                  .max_gradient_norm = options_.max_grad_norm,
                                  .update = state_.step + 1 - skipped_steps(),
                                  .loss_scale = scaler_ ? scaler_->scale() : 1,
                                  .recompute = options_.recompute};
  if (!strategy_->synchronous()) settings.meeting = next_meeting();
  if (callbacks_.inspect && !overlapping_)
    settings.inspect = [&] { callbacks_.inspect(state_.step + 1, false, *strategy_); };
  const Counts counts = strategy_->global_counts(batch.counts);
  const parallel::StepResult result = strategy_->step(batch.micro_batches, counts, settings);
  if (callbacks_.inspect && !overlapping_) callbacks_.inspect(state_.step + 1, true, *strategy_);
  // A smaller scale cures gradients that overflow, not a loss that does.
  const bool overflow = scaler_ && !result.finite && std::isfinite(result.loss);
  if (!result.finite && !overflow) fail(result);
  if (scaler_ && scaler_->update(overflow) == optim::LossScaler::Verdict::exhausted) fail_scaled(result);
  ++state_.step;
  if (strategy_->synchronous() || overlapping_ || !batch.micro_batches.empty()) {
    if (!overlapping_) state_.loss_watch.note_first(state_.step, result.loss);
    state_.loss_sum += result.loss;
    state_.loss_steps += !overlapping_ || first();  // else each rank has a part of the same batch's loss
    result_.loss = result.loss;
  }
  ++window_steps_;
  const int64_t tokens = strategy_->data_share().counted ? batch.tokens : 0;
  window_tokens_ += tokens;
  result_.tokens += tokens;
  return result;
}

void Fit::fail(const parallel::StepResult& result) const {
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

void Fit::fail_scaled(const parallel::StepResult& result) const {
  throw RunError(
      "trainer",
      "step {}: the gradients overflowed in {} steps in a row, the last ones with a loss scale of {} that "
      "may not become smaller; the first that is not finite is that of {}. Nothing was saved after step "
      "{}; --precision bf16 needs no loss scale, or a lower learning rate may help",
      state_.step + 1, scaler_->overflows_in_a_row(), scaler_->scale(), result.non_finite_gradient,
      state_.step);
}

void Fit::log_step(const parallel::StepResult& result) {
  if (callbacks_.on_step && !(overlapping_ && callbacks_.inspect)) callbacks_.on_step(state_.step, result);
  const bool recorded = due(options_.logging_steps);
  // Of all ranks; between records taken as if all shares had as many as this one.
  double tokens = static_cast<double>(window_tokens_ * strategy_->data_share().count);
  if (recorded) {
    tokens = sum_over_ranks(static_cast<double>(window_tokens_));
    share_losses();
  }
  const double speed = window_seconds_ > 0 ? tokens / window_seconds_ : 0;  // 0: the clock was set back
  const int64_t memory = resident_memory();
  if (progress_)
    progress_->update(static_cast<uint64_t>(state_.step),
                      fmt::format("{}{} tokens/s  {}B", shown_loss(result), short_number(speed),
                                  short_number(static_cast<double>(memory))),
                      evaluation_seconds_left());
  if (!recorded) return;
  StepRecord record;
  record.step = state_.step;
  record.epoch = epoch(state_.step);
  record.loss = state_.loss_sum / static_cast<double>(std::max<int64_t>(1, state_.loss_steps));
  record.learning_rate = rate(state_.step);
  record.gradient_norm = norm_over_ranks(result.gradient_norm);
  record.tokens_per_second = speed;
  record.step_seconds = window_seconds_ / static_cast<double>(window_steps_);
  record.wait_share = std::min(1.0, window_wait_ / std::max(window_seconds_, 1e-9));
  record.memory_bytes = memory;
  record.losses = result.losses;
  if (overlapping_) {
    state_.loss_watch.note_first(state_.step, record.loss);
    recorded_loss_ = record.loss;
    record.losses.clear();  // some of the terms
  }
  record.loss_scale = scaler_ ? scaler_->scale() : 0;
  record.skipped_steps = skipped_steps();
  if (records_) records_->add(record);
  if (callbacks_.on_log) callbacks_.on_log(record);
  watch(record.loss, "the training loss");
  state_.loss_sum = 0;
  state_.loss_steps = 0;
  window_steps_ = window_tokens_ = 0;
  window_seconds_ = window_wait_ = 0;
}

void Fit::watch(double loss, const char* name) {
  const std::string warning = state_.loss_watch.check(state_.step, loss, name);
  if (first() && !warning.empty()) log::warning("{}", warning);
}

/// Where steps overlap rank 0 knows the loss of records alone.
std::string Fit::shown_loss(const parallel::StepResult& result) const {
  if (overlapping_ && std::isnan(recorded_loss_)) return {};
  return fmt::format("loss {:.4f}  ", overlapping_ ? recorded_loss_ : result.loss);
}

/// Of all stages, each one's newest.
double Fit::norm_over_ranks(double norm) const {
  if (!overlapping_) return norm;
  return std::sqrt(sum_over_ranks(norm * norm) / static_cast<double>(strategy_->data_share().count));
}

/// Where each rank has losses of its own, the record is of all.
void Fit::share_losses() {
  if (strategy_->synchronous()) return;
  state_.loss_sum = sum_over_ranks(state_.loss_sum);
  state_.loss_steps = static_cast<int64_t>(sum_over_ranks(static_cast<double>(state_.loss_steps)));
  keep_shared_losses();
}

/// On rank 0 alone, lest they are added up again.
void Fit::keep_shared_losses() {
  if (strategy_->synchronous() || first()) return;
  state_.loss_sum = 0;
  state_.loss_steps = 0;
}

double Fit::sum_over_ranks(double value) const {
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  group_.all_reduce(sum);
  return sum.item<double>();
}

/// What the evaluations to come will take, if each takes as long as the last one.
double Fit::evaluation_seconds_left() const {
  const int64_t every = options_.eval_steps > 0 ? options_.eval_steps : draws_.batches_per_epoch();
  const int64_t last = max_steps_ % every != 0;  // one at the end of the run, too
  return static_cast<double>(max_steps_ / every - state_.step / every + last) * evaluation_seconds_;
}

void Fit::evaluate() {
  if (!evaluation_due()) return;
  const auto start = Clock::now();
  const int64_t batch_size = options_.eval_batch_size > 0 ? options_.eval_batch_size : plan_.micro_batch;
  const BatchPlan plan = evaluation_plan(batch_size, plan_.tokens);
  strategy_->share_buffers();
  if (group_.size() > 1) {
    try {
      result_.evaluation = run_evaluation(*evaluation_.data, evaluation_.metrics, plan, options_.seed,
                                          floating_, *strategy_, [] { return interrupt_requested() != 0; });
    } catch (const SharedError& error) {  // all ranks know of it, and can still save together
      save();
      error.rethrow();
    }
    if (result_.evaluation.empty()) throw Interrupted{};
  } else {
    const auto evaluate_batch = [&](std::span<const MicroBatch> batch) {
      if (interrupt_requested()) throw Interrupted{};  // it is done again after the resume
      return strategy_->evaluate(batch);
    };
    or_save("the evaluation", [&] {
      result_.evaluation = run_evaluation(*evaluation_.data, evaluation_.metrics, plan, options_.seed,
                                          floating_, evaluate_batch);
    });
  }
  check_evaluation();
  watch(result_.evaluation.at("loss"), "the loss of the evaluation");
  note_evaluation();
  tell_evaluation();
  evaluation_seconds_ = seconds_since(start);
  if (progress_) progress_->spent_beside(evaluation_seconds_);
  if (records_) records_->add_evaluation(state_.step, epoch(state_.step), result_.evaluation);
  if (callbacks_.on_evaluate) callbacks_.on_evaluate(state_.step, result_.evaluation);
}

void Fit::tell_evaluation() const {
  if (!first() || !options_.progress) return;
  std::vector<std::string> values;
  for (const auto& [name, value] : result_.evaluation)
    values.push_back(fmt::format("{} {:.4f}", name, value));
  const std::string& metric = options_.best_metric;
  const auto best = state_.best_evaluation.find(metric);
  log::info("evaluation at step {} of {}: {}; {}", state_.step, max_steps_, fmt::join(values, ", "),
            state_.best_step == state_.step ? "the best so far"
            : best == state_.best_evaluation.end()
                ? "no best one yet"
                : fmt::format("best {} so far {:.4f}, at step {}", metric, best->second, state_.best_step));
}

void Fit::tell_early_stop() const {
  if (!first() || !out_of_patience() || state_.step >= max_steps_) return;
  log::info(
      "stopped early, at step {} of {}: {} evaluations in a row were not better than that of step {} "
      "(--patience {})",
      state_.step, max_steps_, state_.evaluations_without_gain, state_.best_step, options_.patience);
}

/// Saves before it throws: the training up to here is sound.
void Fit::check_evaluation() {
  if (!result_.evaluation.contains(options_.best_metric)) {
    save();
    std::vector<std::string> names;
    for (const auto& [name, value] : result_.evaluation) names.push_back(name);
    throw InputError("trainer", "the evaluation gives no metric named {}; it gives: {}", options_.best_metric,
                     fmt::join(names, ","));
  }
  const double loss = result_.evaluation.at("loss");
  if (std::isfinite(loss)) return;
  save();
  throw RunError("trainer",
                 "step {}: the loss of the evaluation is {}, though every weight is finite; a look at the "
                 "evaluation data may help",
                 state_.step, loss);
}

void Fit::note_evaluation() {
  state_.evaluated_step = state_.step;
  saved_step_ = -1;
  const double value = result_.evaluation.at(options_.best_metric);
  const auto best = state_.best_evaluation.find(options_.best_metric);
  const bool better =
      !std::isnan(value) &&
      (state_.best_step == 0 || best == state_.best_evaluation.end() || std::isnan(best->second) ||
       (options_.greater_is_better ? value > best->second : value < best->second));
  // Of equal ones the surer: small evaluation sets make ties common, and the first may have learned little.
  const auto best_loss = state_.best_evaluation.find("loss");
  const bool surer = !better && best != state_.best_evaluation.end() && value == best->second &&
                     best_loss != state_.best_evaluation.end() &&
                     result_.evaluation.at("loss") < best_loss->second;
  state_.evaluations_without_gain = better ? 0 : state_.evaluations_without_gain + 1;
  if (better || surer) {
    state_.best_step = state_.step;
    state_.best_evaluation = result_.evaluation;
    save_model();
  }
}

void Fit::save_model() {
  if (!leaves_files()) return;
  require_sound_data();
  check_finite(*strategy_, state_.step);
  std::exception_ptr error;
  strategy_->with_whole_model([&] {
    try {
      replace_saved_model(options_.output, state_.step, [&](const fs::path& folder) {
        if (callbacks_.save_model)
          callbacks_.save_model(folder);
        else
          write_model_file(model_, folder / "model.safetensors");
      });
    } catch (...) {
      error = std::current_exception();
    }
  });
  together(group_, [&] {
    if (error) std::rethrow_exception(error);
  });
}

void Fit::save() {
  if (!leaves_files() || saved_step_ == state_.step) return;
  require_sound_data();
  check_finite(*strategy_, state_.step);
  if (scaler_) state_.loss_scaler = scaler_->state();
  state_.drawn = draws_.drawn(state_.step);
  share_losses();
  try {
    write_checkpoint(*strategy_, state_, checkpoints(), [&] { records_->sync(); });
  } catch (const RunError& error) {
    throw RunError("trainer",
                   "the checkpoint of step {} could not be written, the older ones are as they were: {}",
                   state_.step, std::string(error.what()));
  }
  saved_step_ = state_.step;
  together(group_, [&] {
    if (first()) prune_checkpoints(checkpoints(), options_.save_total_limit, state_.best_step);
  });
}

}  // namespace

Trainer::Trainer(TrainerOptions options, StrategyFactory strategy, optim::OptimizerSpec optimizer)
    : options_(std::move(options)), strategy_(std::move(strategy)), optimizer_(std::move(optimizer)) {
  check_options(options_);
  optim::make_optimizer(optimizer_);
}

FitResult Trainer::fit(Model& model, const Source& train, const Evaluation& evaluation) {
  use_caching_allocator();
  limit_product_cache();
  TrainingNeeds needs{.precision = options_.precision, .optimizer = optimizer_};
  for (const auto& parameter : model.parameters)
    (parameter->trainable ? needs.parameters : needs.constants) += parameter->master.numel();
  try {
    std::unique_ptr<parallel::Strategy> strategy = strategy_();
    needs.ranks = strategy->group().size();
    // Those that read the same rows, or divide what each rank holds.
    needs.parts = strategy->name().starts_with("ps-") ? 1
                  : strategy->name().ends_with("zero3")
                      ? needs.ranks
                      : std::max(1, static_cast<int>(needs.ranks / strategy->parts()));
    return Fit(options_, callbacks, optimizer_, std::move(strategy), model, train, evaluation).run();
  } catch (const InputError&) {
    // If the data are damaged, that is the error, not what came of it.
    train.require_sound();
    if (evaluation.data) evaluation.data->require_sound();
    throw;
  } catch (const fs::filesystem_error& error) {
    throw RunError("trainer", "{}", std::string(error.what()));
  } catch (const std::exception& error) {
    // Of LibTorch's, when a tensor finds no room. What a loader or a callback throws stays what it is.
    if (!is_out_of_memory(error) || dynamic_cast<const std::bad_alloc*>(&error)) throw;
    throw RunError("memory", "{}", memory_advice(needs, memory_limit(), error_text(error)));
  }
}

}  // namespace funicular::train
