#include "funicular/train/training.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/optim/schedules.h"

namespace funicular::train {

namespace {

int64_t steps_of(const TrainerOptions& options, const Draws& draws) {
  if (options.max_steps > 0) return options.max_steps;
  return draws.batches_of(options.num_train_epochs > 0 ? options.num_train_epochs : 3);
}

}  // namespace

Training::Training(const TrainerOptions& wanted, const Callbacks& called, const optim::OptimizerSpec& spec,
                   std::unique_ptr<parallel::Strategy> made, Model& trained, const Source& source,
                   const Evaluation& evaluated)
    : options(wanted),
      callbacks(called),
      strategy(std::move(made)),
      group(strategy->group()),
      model(trained),
      data(source),
      evaluation(evaluated),
      plan(plan_batches(options, strategy->parts(), strategy->pieces())),
      base_rate(optim::peak_learning_rate(spec)),
      optimizer(optim::scale_rate(spec, options.batch_rate, plan.batch)),
      schedule(optim::scale_rate(options.schedule, options.batch_rate, plan.batch)),
      draws(data, options, plan),
      steps_per_epoch(draws.batches_per_epoch()),
      floating(master_type(options.precision)),
      max_steps(steps_of(options, draws)),
      meetings(*strategy, {.records = options.logging_steps,
                           .saves = options.save_steps,
                           .evaluations = evaluation.data ? evaluation_steps() : 0,
                           .epoch = steps_per_epoch,
                           .last_step = max_steps}),
      run{options,
          base_rate,
          optimizer,
          schedule,
          model,
          data,
          evaluation,
          plan,
          max_steps,
          steps_per_epoch,
          group.size(),
          strategy->name(),
          strategy->device_count(),
          draws.corpora(max_steps)} {
  optim::warmup_steps(schedule, max_steps);
  if (options.precision == Precision::fp16) scaler.emplace(options.loss_scale);
  if (options.precision == Precision::tf32) tf32.emplace();
}

double Training::rate(int64_t step) const {
  return optim::learning_rate(schedule, optim::peak_learning_rate(optimizer), step - 1, max_steps);
}

bool Training::out_of_patience() const {
  return options.patience > 0 && state.evaluations_without_gain >= options.patience;
}

void Training::require_sound_data() {
  if (data_is_sound_) return;
  try {
    comm::together(group, [&] {
      data.require_sound();
      if (evaluation.data) evaluation.data->require_sound();
    });
  } catch (const InputError&) {
    if (first() && leaves_files())
      log::error("the data are damaged: nothing was saved that came of them, after step {}",
                 result.resumed_from);
    throw;
  }
  data_is_sound_ = true;
}

}  // namespace funicular::train
