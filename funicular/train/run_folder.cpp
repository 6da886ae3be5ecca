#include "funicular/train/run_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/comm/together.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/resume.h"
#include "funicular/train/run_file.h"
#include "funicular/train/saved_model.h"

namespace funicular::train {

RunFolder::RunFolder(Training& training)
    : training_(training),
      options_(training.options),
      strategy_(training.strategy.get()),
      state_(training.state) {
  together(training_.group, [&] {
    if (training_.writes()) take();
  });
}

void RunFolder::take() {
  check_saved_model(options_.output);
  make_directories(options_.output);
  lock_.emplace(options_.output);
  recover_leftovers(checkpoints());
  recover_saved_model(options_.output);
  for (const char* file : {"run.json", "metrics.jsonl"})
    for (const fs::path& leftover : temporaries_of(options_.output / file)) fs::remove(leftover);
}

// ---- resuming

void RunFolder::resume() {
  state_.identity = identity_of(training_.run);
  state_.settings = settings_of(training_.run);
  // Saving empties the pipeline, after which gradients belong to the newest weights.
  if (const auto* const overlapping = training_.meetings.overlapping())
    state_.settings["pipeline"] =
        fmt::format("{}, saved every {} steps", overlapping->versions(), options_.save_steps);
  if (!training_.leaves_files() && (options_.resume == "auto" || options_.resume == "never")) return;
  const fs::path checkpoint =
      from_first(training_.group, [&] { return find_checkpoint(options_.output, options_.resume).string(); });
  if (checkpoint.empty()) {
    if (training_.writes() && fs::exists(options_.output / "run.json"))
      log::warning(
          "{} holds the records of an earlier run, but no checkpoint: this run starts from the beginning and "
          "overwrites the records",
          options_.output.string());
    return;
  }
  TrainingState saved;
  together(training_.group, [&] { saved = read(checkpoint); });
  read_tensors(*strategy_, checkpoint);
  take_state(std::move(saved), checkpoint);
  if (training_.first())
    log::info("resumed from {} at step {} of {}", checkpoint.string(), state_.step, training_.max_steps);
}

/// Throws InputError if this run cannot resume from `checkpoint`.
TrainingState RunFolder::read(const fs::path& checkpoint) const {
  TrainingState saved = read_state(checkpoint);
  const bool is_finished = saved.step >= training_.max_steps ||
                           (options_.patience > 0 && saved.evaluations_without_gain >= options_.patience);
  // A user who names a checkpoint goes back to it on purpose.
  const bool goes_on = !is_finished || options_.resume != "auto";
  check_resumable(saved, state_.identity, state_.settings, checkpoint, goes_on);
  if (auto& scaler = training_.scaler)
    scaler->restore(Json(saved.loss_scaler), (checkpoint / "state.json").string());
  if (const auto drawn = training_.draws.drawn(saved.step); saved.drawn != drawn)
    throw InputError("trainer",
                     "{} has drawn {} sequences of its corpora, and this program would have drawn {}: it was "
                     "made by another version; resume it with that version",
                     checkpoint.string(), fmt::join(saved.drawn, ", "), fmt::join(drawn, ", "));
  return saved;
}

void RunFolder::take_state(TrainingState saved, const fs::path& checkpoint) {
  forget_other_evaluation(saved, state_.settings);
  saved.identity = std::move(state_.identity);
  saved.settings = std::move(state_.settings);
  state_ = std::move(saved);
  training_.result.resumed_from = state_.step;
  training_.meetings.keep_shared_losses(state_);
  if (!training_.leaves_files()) return;
  std::error_code error;
  if (fs::equivalent(checkpoint.parent_path(), checkpoints(), error)) saved_step_ = state_.step;
  together(training_.group, [&] {
    if (!training_.first()) return;
    set_newer_aside(options_.output, checkpoint, state_.step);
    take_best_model(options_.output, checkpoint, state_);
    // A process that was killed just after a save may have left one checkpoint too many.
    if (saved_step_ == state_.step)
      prune_checkpoints(checkpoints(), options_.save_total_limit, state_.best_step);
  });
  share_state();
}

/// Rank 0 may have forgotten the best model, where it is lost.
void RunFolder::share_state() {
  if (training_.group.size() == 1) return;
  const std::string text = from_first(training_.group, [&] { return json_text(state_.to_json()); });
  state_ = TrainingState::from_json(parse_json(text, "rank 0's state"), "rank 0's state");
}

// ---- before the first step, and after the last

SpaceNeeds RunFolder::needs() const {
  const int64_t saves = options_.save_steps > 0 ? training_.max_steps / options_.save_steps + 1 : 1;
  const int64_t kept = options_.save_total_limit > 0 ? std::min(options_.save_total_limit, saves) : saves;
  return space_needs(*strategy_, training_.run.parameters, kept + 1 + (training_.evaluation.data != nullptr));
}

void RunFolder::begin() {
  together(training_.group, [&] {
    if (training_.writes() && !training_.finished()) check_space(needs(), options_.output);
  });
  if (training_.writes()) earlier_ = finished_result(options_.output, state_.step);
  together(training_.group, [&] {
    if (!training_.writes()) return;
    if (earlier_.is_null() || !training_.finished())
      write_run_file(training_.run, training_.result.resumed_from, OrderedJson());
    records_ = std::make_unique<Records>(options_.output, state_.step, state_.evaluated_step);
  });
  if (training_.first() && training_.finished() && !earlier_.is_null())
    log::info("the run in {} is finished already, at step {}; another --output begins a new one",
              options_.output.string(), state_.step);
}

void RunFolder::end() {
  together(training_.group, [&] {
    if (!training_.writes()) return;
    FitResult& result = training_.result;
    // A run that was finished before has taken no step of which a loss could be known.
    if (std::isnan(result.loss) && result.step == result.resumed_from && earlier_.is_object())
      if (const OrderedJson loss = earlier_.value("loss", OrderedJson()); loss.is_number())
        result.loss = loss.get<double>();
    write_outcome();
  });
  FitResult& result = training_.result;
  if (result.step == result.resumed_from)  // only the rank that writes has read it
    result.loss = std::stod(from_first(training_.group, [&] { return fmt::format("{}", result.loss); }));
}

void RunFolder::write_outcome() {
  const FitResult& result = training_.result;
  if (!earlier_.is_null() && result.evaluation.empty() && result.step == result.resumed_from &&
      earlier_.value("best_step", OrderedJson()) == result.best_step)
    return;
  OrderedJson outcome = {{"step", result.step},
                         {"interrupted", result.interrupted},
                         {"stopped_early", result.stopped_early},
                         {"loss", result.loss},
                         {"best_step", result.best_step},
                         {"best_evaluation", result.best_evaluation},
                         {"skipped_steps", result.skipped_steps},
                         {"tokens", result.tokens},
                         {"seconds", result.seconds}};
  if (!result.staleness.empty()) outcome["staleness"] = result.staleness;
  write_run_file(training_.run, result.resumed_from, outcome);
}

// ---- what is saved

void RunFolder::or_save(const char* what, const std::function<void()>& read) {
  try {
    together(training_.group, read);
  } catch (const Interrupted&) {
    throw;
  } catch (...) {
    save();
    if (training_.first())
      log::error("{} failed after step {}{}", what, state_.step,
                 training_.leaves_files() ? ", whose state is saved" : "");
    throw;
  }
}

bool RunFolder::model_is_saved() const {
  return from_first(training_.group, [&] {
           return saved_model_step(options_.output) == (state_.best_step > 0 ? state_.best_step : state_.step)
                      ? std::string("yes")
                      : std::string();
         }) == "yes";
}

void RunFolder::save_model() {
  if (!training_.leaves_files()) return;
  training_.require_sound_data();
  check_finite(*strategy_, state_.step);
  std::exception_ptr error;
  strategy_->with_whole_model([&] {
    try {
      replace_saved_model(options_.output, state_.step, [&](const fs::path& folder) {
        if (const auto& write = training_.callbacks.save_model)
          write(folder);
        else
          write_model_file(training_.model, folder / "model.safetensors");
      });
    } catch (...) {
      error = std::current_exception();
    }
  });
  together(training_.group, [&] {
    if (error) std::rethrow_exception(error);
  });
}

void RunFolder::save() {
  if (!training_.leaves_files() || saved_step_ == state_.step) return;
  training_.require_sound_data();
  check_finite(*strategy_, state_.step);
  if (training_.scaler) state_.loss_scaler = training_.scaler->state();
  state_.drawn = training_.draws.drawn(state_.step);
  training_.meetings.share_losses(state_);
  try {
    write_checkpoint(*strategy_, state_, checkpoints(), [&] { records_->sync(); });
  } catch (const RunError& error) {
    throw RunError("trainer",
                   "the checkpoint of step {} could not be written, the older ones are as they were: {}",
                   state_.step, std::string(error.what()));
  }
  saved_step_ = state_.step;
  together(training_.group, [&] {
    if (training_.first()) prune_checkpoints(checkpoints(), options_.save_total_limit, state_.best_step);
  });
}

}  // namespace funicular::train
