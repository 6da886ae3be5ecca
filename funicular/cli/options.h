#pragma once
// The options that several commands share, declared in one place, and what they mean to the library.

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "funicular/base/interrupt.h"
#include "funicular/cli/arguments.h"
#include "funicular/cli/places.h"
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

// Single options of several commands. Each declares one with its aliases and limits, and gives it back for
// what is the command's own (a text for the default, another alias).

/// --model, required.
Option& declare_model(Arguments& arguments, fs::path& target, std::string help, std::string value = "DIR");

/// What --help says of a default that model::fit_positions makes shorter.
inline constexpr const char* kDefaultLength = "128, or the model's longest";

/// --max-length; `longer` says what becomes of a longer one. A target without a value: the default is decided
/// later.
Option& declare_max_length(Arguments& arguments, int64_t& target, const std::string& longer,
                           int64_t least = 4);
Option& declare_max_length(Arguments& arguments, std::optional<int64_t>& target, const std::string& longer,
                           int64_t least = 4);

/// --eval-batch-size.
Option& declare_eval_batch_size(Arguments& arguments, std::optional<int64_t>& target);

/// --micro-batch-tokens, at least `least`; `remark` follows what it is.
Option& declare_micro_batch_tokens(Arguments& arguments, int64_t& target, const std::string& remark,
                                   int64_t least = 0);

/// --seed; `of` says of what.
Option& declare_seed(Arguments& arguments, int64_t& target, std::string of);

/// --device, --threads.
struct DeviceOptions {
  std::string device = "cpu";
  int64_t threads = 0;  ///< 0: as many as LibTorch takes

  void declare(Arguments& arguments, Effect of_device = Effect::rounding,
               Effect of_threads = Effect::rounding);
  /// Sets the number of threads. Throws InputError for a device that cannot be used.
  void apply() const;
  /// Where weights and batches are to lie.
  at::Device place() const { return at::Device(device); }
};

/// The value of --precision that stands for the one that fits this machine (nn/precision_choice.h).
inline constexpr const char* kAutoPrecision = "auto";

/// --precision of a command that uses a model, "auto" by default; `more`: values besides those of
/// model::inference_precisions.
Option& declare_inference_precision(Arguments& arguments, std::string& target,
                                    const std::vector<std::string>& more = {});
/// What takes the place of "auto", said; anything else stays.
std::string resolve_inference_precision(const std::string& precision, at::Device device);

/// What pre-training and fine-tuning share. The defaults are those of Hugging Face's TrainingArguments where
/// it has them, but for the batch, which here is the global one.
struct TrainingOptions : RankOptions {
  fs::path output;
  std::string resume = "auto";

  std::optional<int64_t> batch_size, micro_batch_size, gradient_accumulation, eval_batch_size;
  int64_t micro_batch_tokens = 8192;
  std::optional<int64_t> max_steps;
  std::optional<double> num_train_epochs;
  bool shuffle = true, drop_last = false;

  std::string optim = "adamw";
  double learning_rate = 5e-5, weight_decay = 0;
  SettingOptions optimizer_settings;
  std::string lr_scheduler_type = "linear";
  std::optional<int64_t> warmup_steps;
  std::optional<double> warmup_ratio;
  SettingOptions schedule_settings;
  double max_grad_norm = 1;

  std::string precision = kAutoPrecision;  ///< after apply() never that
  double loss_scale = 0;                   ///< of fp16; 0: dynamic, by the following
  optim::LossScalerOptions scaler;
  std::string recompute = "none";
  int64_t seed = 42;
  int64_t num_workers = 1;
  DeviceOptions device;

  int64_t logging_steps = 10, save_steps = 500, save_total_limit = 2, eval_steps = 0, patience = 0;
  std::string best_metric;  ///< empty: the command's default

  /// Declares all of them under headings.
  void declare(Arguments& arguments);
  /// Checks what one option alone cannot tell, applies --device and --threads, and joins the other ranks.
  /// Throws InputError.
  void apply();
  /// Throws InputError where the run would replace what it does not own: a folder OUTPUT/model that no run
  /// into OUTPUT wrote, or one of `inputs`, what the run reads. Told before anything is done.
  void check_output(std::initializer_list<fs::path> inputs) const;
  /// For a run without anything to evaluate on: throws InputError if options ask for evaluations. `remedy`
  /// names the options that give something ("--eval FILE").
  void refuse_evaluation_options(const std::string& remedy) const;
  /// Whether training begins with the weights of --model: there is no checkpoint to go on from, in --output
  /// or named by --resume, or it is not to be used.
  bool starts_anew() const;
  /// The ranks that train together; this process alone before apply().
  const comm::Group& group() const { return group_; }
  train::StrategyFactory strategy_factory() const { return factory(group_); }
  /// For the trainer; output, identity, run_info and best metric are left to the command.
  train::TrainerOptions trainer() const;
  optim::OptimizerSpec optimizer() const;
  /// fp32 or fp64.
  at::ScalarType dtype() const;

 private:
  /// Puts what fits in the place of "auto", the same on all ranks: a run that goes on keeps its precision.
  void choose_precision();
  /// Of options that were given and do nothing beside the others.
  void warn_of_idle_options() const;

  const Arguments* arguments_ = nullptr;  ///< where they are declared
  comm::Group group_;
  /// From apply() on: a signal that comes before the first step is saved like one within the training. Several ranks that
  /// still wait for each other end by the signal itself: nothing has begun.
  std::shared_ptr<const InterruptGuard> guard_;
};

/// Within the folder of a pre-training: the run of the steps in which only a new head learns.
inline constexpr const char* kHeadRun = "head";

/// Writes how a training ended to standard output, as one JSON object, and returns the exit code. The object has the best
/// evaluation, if there was one, with the keys of `beside_scores`. Rank 0 writes it; returns when all ranks are here.
int report_result(const train::FitResult& result, const train::TrainerOptions& options,
                  const comm::Group& group, const OrderedJson& beside_scores = OrderedJson::object());

}  // namespace funicular::cli
