#pragma once
// The options of a training, which pretrain, finetune and distill share, and what they mean to the library.

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "funicular/base/interrupt.h"
#include "funicular/cli/arguments.h"
#include "funicular/cli/common_options.h"
#include "funicular/cli/output_paths.h"
#include "funicular/cli/rank_options.h"
#include "funicular/cli/setting_options.h"
#include "funicular/comm/group.h"
#include "funicular/core/model.h"
#include "funicular/data/token_store.h"
#include "funicular/format/model_config.h"
#include "funicular/optim/optimizer.h"
#include "funicular/text/sequence_template.h"
#include "funicular/train/trainer.h"

namespace funicular::cli {

/// Options shared by pre-training and fine-tuning. The defaults follow Hugging Face's TrainingArguments,
/// except the batch, which is global here.
struct TrainingOptions : RankOptions {
  /// The trainer's options as they were given. trainer() adds the fields that are computed from other fields.
  train::TrainerOptions run{.micro_batch_tokens = 8192, .whole_model_after = false};

  std::string optim = "adamw";
  double learning_rate = 5e-5, weight_decay = 0;
  SettingOptions optimizer_settings, schedule_settings;
  std::string precision = kAutoPrecision;  ///< after apply() never that
  DeviceOptions device;

  std::string best_metric;  ///< empty: the command's default

  /// Declares --output, which is required; it belongs with the inputs.
  Option& declare_output(Arguments& arguments);
  /// Declares all remaining options under headings.
  void declare(Arguments& arguments);
  /// Checks combinations of options, applies --device and --threads, and joins all other ranks. Throws
  /// InputError.
  void apply();
  /// Throws InputError if the run would replace a folder OUTPUT/model that no run into OUTPUT wrote, or one of
  /// `inputs`, which the run reads. Call it before any work.
  void check_output(std::initializer_list<fs::path> inputs) const;
  /// For a run without anything to evaluate on: throws InputError if options ask for evaluations. `remedy`
  /// names the options that give something ("--eval FILE").
  void refuse_evaluation_options(const std::string& remedy) const;
  /// Whether training begins with the weights of --model. This is so if --output has no checkpoint and --resume
  /// names none, or if --resume is never.
  bool starts_anew() const;
  /// The ranks that train together; this process alone before apply().
  const comm::Group& group() const { return group_; }
  train::StrategyFactory strategy_factory() const { return factory(group_); }
  /// For the trainer; output, identity, run_info and best metric are left to the command.
  train::TrainerOptions trainer() const;
  optim::OptimizerSpec optimizer() const;
  /// fp32 or fp64.
  at::ScalarType dtype() const;
  /// ModelOptions::repeatable.
  bool repeatable() const { return strategy_options.deterministic || strategy_options.cuda_graphs; }

 private:
  /// Returns GroupOptions::transport.
  std::string transport() const;
  /// Replaces "auto" by a precision, equal on all ranks; a resumed run keeps its precision.
  void choose_precision();
  /// Throws InputError if tf32 is asked for where there is none. Says so if fp32 is slow.
  void check_tf32() const;
  /// Throws InputError if passes cannot be repeated from recordings.
  void check_cuda_graphs(int ranks) const;
  /// Throws InputError if this process would use more GPUs than it has, or several where --device names one.
  void check_devices() const;
  /// Warns of given options that have no effect in this combination.
  void warn_of_idle_options() const;

  const Arguments* arguments_ = nullptr;  ///< where they are declared
  comm::Group group_;
  /// From apply() on: a signal that comes before the first step is saved like one within the training. Several ranks
  /// that still wait for each other end by the signal itself: nothing has begun.
  std::shared_ptr<const InterruptGuard> guard_;
};

/// Within the folder of a pre-training: the run of the steps in which only a new head learns.
inline constexpr const char* kHeadRun = "head";

/// Writes how a training ended to standard output, as one JSON object, and returns the exit code. The object has the
/// best evaluation, if there was one, with the keys of `beside_scores`. Rank 0 writes it; returns when all ranks are
/// here. `next`: what to do next, for people.
int report_result(const train::FitResult& result, const train::TrainerOptions& options,
                  const comm::Group& group, const OrderedJson& beside_scores = OrderedJson::object(),
                  const std::string& next = "");

}  // namespace funicular::cli
