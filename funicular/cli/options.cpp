#include "funicular/cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/cli/output_paths.h"
#include "funicular/comm/together.h"
#include "funicular/data/batch_sizes.h"
#include "funicular/launch/environment.h"
#include "funicular/nn/precision_choice.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/runtime/gpu_cards.h"
#include "funicular/train/batching.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/resume.h"
#include "funicular/train/saved_model.h"

namespace funicular::cli {

namespace {

void declare_batch_warmup(TrainingOptions& options, Arguments& arguments) {
  arguments
      .add("batch-warmup-steps", "STEPS", options.run.batch_warmup_steps, Effect::result,
           "steps over which the batch grows from --batch-warmup-start to its full size")
      .default_text("0")
      .range(0, data::BatchSizes::kMost);
  arguments
      .add("batch-warmup-start", "N", options.run.batch_warmup_start, Effect::result,
           "first batch, in sequences or, with --tokens-per-batch, in tokens; for --batch-warmup-steps")
      .default_text("none")
      .range(1);
}

void declare_batch(TrainingOptions& options, Arguments& arguments) {
  arguments.section("Batches and length");
  arguments
      .add(
          "batch-size", "SEQUENCES", options.run.batch_size, Effect::result,
          "sequences per optimiser step, over all devices: the "
          "global batch. Any two of it, --micro-batch-size and --gradient-accumulation-steps imply the third")
      .common()
      .default_text("32")
      .range(1);
  arguments
      .add("tokens-per-batch", "TOKENS", options.run.batch_tokens, Effect::result,
           "real tokens per optimiser step at most, over all devices, in place of --batch-size")
      .default_text("by --batch-size")
      .range(1, data::BatchSizes::kMost);
  arguments.rivals({"batch-size", "tokens-per-batch"});
  declare_batch_warmup(options, arguments);
  arguments
      .add("micro-batch-size", "SEQUENCES", options.run.micro_batch_size, Effect::result,
           "sequences per forward pass")
      .default_text("the whole batch")
      .alias("per-device-train-batch-size")
      .range(1);
  arguments
      .add("gradient-accumulation-steps", "N", options.run.gradient_accumulation, Effect::result,
           "forward passes per optimiser step")
      .default_text("1")
      .range(1);
  declare_micro_batch_tokens(arguments, options.run.micro_batch_tokens,
                             "bounds the memory and does not change the result; 0: no limit");
  declare_eval_batch_size(arguments, options.run.eval_batch_size).default_text("as in training");
  arguments.add("max-steps", "STEPS", options.run.max_steps, Effect::result, "optimiser steps in all")
      .common()
      .default_text("by epochs")
      .range(1);
  arguments
      .add("num-train-epochs", "EPOCHS", options.run.num_train_epochs, Effect::result,
           "passes over the training data")
      .common()
      .default_text("3")
      .alias("epochs")
      .above(0);
  arguments.rivals({"max-steps", "num-train-epochs"});
  arguments.add("shuffle", options.run.shuffle, Effect::result,
                "a new order in each epoch; --no-shuffle: the order of the data");
  arguments
      .add("drop-last", options.run.drop_last, Effect::result,
           "leave out the last, shorter batch of each epoch")
      .alias("dataloader-drop-last");
}

void declare_optimizer(TrainingOptions& options, Arguments& arguments) {
  std::vector<SettingOptions::Row> rows;
  for (const optim::OptimizerKind* kind : optim::optimizer_kinds())
    rows.push_back({kind->name, kind->settings, [kind](const optim::Setting& setting) {
                      return optim::usual_optimizer(kind->name).get(setting.name);
                    }});
  Option& optim = arguments.add("optim", "NAME", options.optim, Effect::result, "optimiser")
                      .choices(optim::optimizer_names());
  for (const optim::OptimizerKind* kind : optim::optimizer_kinds())
    for (const std::string& spelling : kind->spellings) optim.accept(spelling, kind->name);
  arguments.add("learning-rate", "RATE", options.learning_rate, Effect::result, "peak learning rate")
      .common()
      .alias("lr")
      .above(0);
  arguments.add("scale-learning-rate", "RULE", options.run.batch_rate.rule, optim::rate_scaling_names(),
                Effect::result,
                "multiply the rate by batch size / --base-batch-size (linear) or by its square root (sqrt)");
  arguments
      .add("base-batch-size", "SEQUENCES", options.run.batch_rate.base_batch, Effect::result,
           "batch size that the learning rate is for, for --scale-learning-rate")
      .default_text("none")
      .range(1);
  arguments
      .add("weight-decay", "RATE", options.weight_decay, Effect::result,
           "decay of all weights but biases and normalisations")
      .range(0);
  options.optimizer_settings.declare(arguments, "optim", rows);
}

void declare_schedule(TrainingOptions& options, Arguments& arguments) {
  arguments.add("lr-scheduler-type", "NAME", options.run.schedule.kind, optim::schedule_names(),
                Effect::result, "shape of the learning rate");
  arguments
      .add("warmup-steps", "STEPS", options.run.schedule.warmup_steps, Effect::result,
           "steps of linear warm-up")
      .default_text("0")
      .range(0);
  arguments
      .add("warmup-ratio", "SHARE", options.run.schedule.warmup_ratio, Effect::result,
           "warm-up as a share of all steps")
      .default_text("0")
      .range(0, 1);
  arguments.rivals({"warmup-steps", "warmup-ratio"});
  std::vector<SettingOptions::Row> rows;
  for (const optim::ScheduleRow& row : optim::schedule_rows())
    rows.push_back(
        {row.name, row.settings, [&row](const optim::Setting& setting) { return row.usual(setting); }});
  options.schedule_settings.declare(arguments, "lr-scheduler-type", rows);
}

void declare_optimisation(TrainingOptions& options, Arguments& arguments) {
  arguments.section("Optimisation");
  declare_optimizer(options, arguments);
  declare_schedule(options, arguments);
  arguments
      .add("max-grad-norm", "NORM", options.run.max_grad_norm, Effect::result,
           "clip the global gradient norm; 0: do not")
      .range(0);
}

void declare_saving(TrainingOptions& options, Arguments& arguments) {
  arguments.section("Evaluation and saving");
  arguments
      .add("logging-steps", "STEPS", options.run.logging_steps, Effect::none,
           "steps between records in metrics.jsonl; 0: none")
      .range(0);
  arguments
      .add("eval-steps", "STEPS", options.run.eval_steps, Effect::result,
           "steps between evaluations; 0: at the end of each epoch")
      .range(0);
  arguments
      .add("save-steps", "STEPS", options.run.save_steps, Effect::none,
           "steps between checkpoints; 0: only when interrupted")
      .range(0);
  arguments
      .add("save-total-limit", "N", options.run.save_total_limit, Effect::none, "checkpoints kept; 0: all")
      .range(0);
  arguments
      .add("patience", "N", options.run.patience, Effect::result,
           "stop after N evaluations without a better one; 0: never")
      .alias("early-stopping-patience")
      .range(0);
  arguments
      .add("metric-for-best-model", "NAME", options.best_metric, Effect::result,
           "the metric that decides which model is kept; of equal ones the smaller loss")
      .default_text("the task's");
  arguments
      .add("resume", "auto|never|PATH", options.run.resume, Effect::result,
           "checkpoint to resume from: the newest valid one of --output, none, or the one in PATH")
      .alias("resume-from-checkpoint");
}

void declare_loss_scale(optim::LossScalerOptions& options, Arguments& arguments) {
  arguments
      .add("loss-scale", "S", options.fixed_scale, Effect::result,
           "for fp16: a static loss scale; 0: dynamic")
      .default_text("0")
      .range(0);
  arguments
      .add("initial-loss-scale", "S", options.initial_scale, Effect::result,
           "for fp16: the first dynamic scale, from --min-loss-scale to 16777216 (2^24)")
      .range(0, options.max_scale)
      .above(0);
  arguments
      .add("min-loss-scale", "S", options.min_scale, Effect::result,
           "for fp16: lower limit of the dynamic scale")
      .range(0, options.max_scale)
      .above(0);
  arguments
      .add("loss-scale-window", "STEPS", options.growth_interval, Effect::result,
           "for fp16: steps without overflow before the dynamic scale doubles")
      .range(1);
  arguments
      .add("hysteresis", "N", options.hysteresis, Effect::result,
           "for fp16: overflows that halve the dynamic scale")
      .range(1);
}

void declare_arithmetic(TrainingOptions& options, Arguments& arguments) {
  arguments.section("Machine and randomness");
  arguments
      .add("precision", "NAME", options.precision, Effect::result,
           "arithmetic; auto: bf16 if it is faster on this processor, else fp32; a resumed run keeps its "
           "precision; tf32 needs a GPU")
      .common()
      .choices({kAutoPrecision, "fp32", "fp64", "bf16", "fp16", "tf32"})
      .accept("float32", "fp32")
      .accept("32-true", "fp32")
      .accept("bfloat16", "bf16")
      .accept("bf16-mixed", "bf16")
      .accept("float16", "fp16")
      .accept("16-mixed", "fp16");
  arguments
      .add(
          "bf16", [&options] { options.precision = "bf16"; }, Effect::result, "as --precision bf16")
      .hidden();
  arguments
      .add(
          "fp16", [&options] { options.precision = "fp16"; }, Effect::result, "as --precision fp16")
      .hidden();
  arguments.rivals({"precision", "bf16", "fp16"});
  declare_loss_scale(options.run.loss_scale, arguments);
  arguments.add("recompute", "NAME", options.run.recompute, recompute_names(), Effect::none,
                "save memory by computing activations again in the backward pass: of each layer (full), "
                "attention (selective) or groups of layers (sqrt). The result is the same");
  arguments
      .add(
          "gradient-checkpointing", [&options] { options.run.recompute = Recompute::full; }, Effect::none,
          "as --recompute full")
      .hidden();
  arguments.rivals({"recompute", "gradient-checkpointing"});
  declare_seed(arguments, options.run.seed, "of every random choice");
  arguments
      .add("num-workers", "N", options.run.num_workers, Effect::none,
           "threads that prepare batches; does not change the result")
      .alias("dataloader-num-workers")
      .range(0, 256);
}

}  // namespace

Option& TrainingOptions::declare_output(Arguments& arguments) {
  return arguments
      .add("output", "RUN", run.output, Effect::output,
           "folder of the run: checkpoints, metrics and, in RUN/model, the model")
      .common()
      .alias("output-dir")
      .required();
}

void TrainingOptions::declare(Arguments& arguments) {
  arguments_ = &arguments;
  declare_batch(*this, arguments);
  declare_optimisation(*this, arguments);
  declare_saving(*this, arguments);
  declare_arithmetic(*this, arguments);
  device.declare(arguments);
  device.declare_sharing(arguments);
  RankOptions::declare(arguments);
}

void TrainingOptions::apply() {
  // transformers writes a metric of evaluations so.
  if (best_metric.starts_with("eval_")) best_metric.erase(0, std::string_view("eval_").size());
  if (run.max_steps > 0 && run.num_train_epochs > 0)
    throw InputError("usage", "--max-steps {} and --num-train-epochs {} are both given; give one of them",
                     run.max_steps, run.num_train_epochs);
  if (run.schedule.warmup_steps > 0 && run.schedule.warmup_ratio > 0)
    throw InputError("usage", "--warmup-steps {} and --warmup-ratio {} are both given; give one of them",
                     run.schedule.warmup_steps, run.schedule.warmup_ratio);
  optimizer().check();
  const bool choose = precision == kAutoPrecision;
  if (choose) precision = "fp32";  // until all ranks are there
  const launch::Environment place = launch::read_environment();
  settle(place.size);
  require_parent_folder(strategy_options.record_passes, "--record-passes");
  require_ending(strategy_options.record_passes, "--record-passes", {"json"});
  optim::check(trainer().schedule);
  optim::check(run.batch_rate);
  train::plan_batches(trainer(), parts(place.size), pieces());  // contradictions, before files are read
  if (strategy_options.offload == "cpu" || strategy_options.offload == "nvme")
    throw InputError(
        "usage",
        "--offload-optimizer expects a folder on a disk, found \"{}\", a word of DeepSpeed's; the "
        "state lies in the processor's memory without this option",
        strategy_options.offload.string());
  if (device.device != "cpu" && !strategy_options.offload.empty())
    throw InputError(
        "device",
        "--offload-optimizer is for the CPU; on --device {} the state lies in its memory. Leave it "
        "out, or divide the state among GPUs by funicular launch and --strategy zero1",
        device.device);
  check_cuda_graphs(place.size);
  device.apply();
  check_devices();
  strategy_options.device = device.place();
  if (device.threads == 0) share_threads(place);
  device.stay_near_card(place.local_size);
  if (place.size == 1) guard_ = std::make_shared<InterruptGuard>();
  group_ = comm::Group::from_environment(
      {.timeout = std::chrono::hours(
           4),  // the others wait while rank 0 tokenises or saves; the dead are noticed sooner
       .interface = interface,
       .check_collectives = debug_collectives,
       .fixed_order = strategy_options.deterministic,
       .device = device.place(),
       .transport = transport()});
  if (!guard_) guard_ = std::make_shared<InterruptGuard>();
  // All ranks would log the same messages, so only rank 0 logs more than errors.
  if (group_.rank() > 0 && !log::enabled(log::Level::debug)) log::set_level(log::Level::error);
  warn_of_layout(group_.size());
  if (choose) choose_precision();
  check_tf32();
  warn_of_idle_options();
  strategy_factory()();
}

/// A server of ps-async has a thread for each worker. NCCL's operations on one card must have one order on all ranks.
std::string TrainingOptions::transport() const {
  return strategy == "ps-async" && !device.place().is_cpu() ? "staged" : device.transport();
}

void TrainingOptions::choose_precision() {
  const std::string choice = comm::from_first(group_, [&] {
    const std::string earlier = train::precision_of_run(run.output, run.resume);
    const nn::PrecisionChoice own = nn::choose_precision(device.place());
    return earlier.empty() ? fmt::format("{} {}", own.name, own.reason) : earlier + " as the run began";
  });
  const size_t blank = choice.find(' ');
  precision = choice.substr(0, blank);
  log::info("precision: {}, {} (--precision auto)", precision, choice.substr(blank + 1));
}

void TrainingOptions::check_cuda_graphs(int ranks) const {
  if (!strategy_options.cuda_graphs) return;
  if (device.device == "cpu" || ranks > 1 ||
      (strategy != "auto" && strategy != "single" && strategy != "ddp"))
    refuse_graphs();
  if (strategy_options.deterministic)
    throw InputError("usage",
                     "--cuda-graphs pads batches, so its sums are in another order; leave out "
                     "--cuda-graphs or --deterministic");
  if (run.recompute != Recompute::none)
    throw InputError("usage", "--cuda-graphs does not go with --recompute; leave one of them out");
}

void TrainingOptions::check_devices() const {
  const int devices = layout().devices;
  if (devices < 2 || device.device == "cpu") return;
  if (device.device.starts_with("cuda:"))
    throw InputError(
        "usage",
        "--device {0} names one GPU, and --strategy {1} --devices {2} uses {2}; give --device cuda. "
        "To choose the GPUs, set CUDA_VISIBLE_DEVICES, as to 1,2 for the second and the third",
        device.device, strategy, devices);
  const auto cards = static_cast<int>(device::cards().size());
  if (devices > cards && !device.share)
    throw InputError("usage",
                     "--strategy {0} --devices {1} uses {1} GPUs, found {2}; give fewer, or --share-device",
                     strategy, devices, cards);
}

void TrainingOptions::check_tf32() const {
  if (precision == "tf32") nn::require_tf32(device.place());
  note_slow_precision(precision, device.place());
}

void TrainingOptions::check_output(std::initializer_list<fs::path> inputs) const {
  std::error_code ignored;
  for (const fs::path& input : inputs)
    for (const char* name : {"model", "checkpoints", kHeadRun}) {
      const fs::path replaced = fs::weakly_canonical(run.output / name, ignored);
      const fs::path relative = fs::weakly_canonical(input, ignored).lexically_relative(replaced);
      if (!input.empty() && fs::exists(input, ignored) && !relative.empty() && *relative.begin() != "..")
        throw InputError(
            "usage",
            "--output {} holds {}, which this run reads and would replace. Then the command could not be "
            "repeated. Choose another --output, or copy the input to another place first",
            run.output.string(), input.string());
    }
  require_folder_name(run.output, "--output");
  train::check_saved_model(run.output);
  warn_of_other_files(run.output);
}

void TrainingOptions::warn_of_idle_options() const {
  using Names = std::vector<std::string>;
  const auto belong = [&](const Names& options, const char* chooser, const std::string& chosen,
                          const Names& users) {
    warn_unless_used(*arguments_, options, fmt::format("--{} {}", chooser, chosen), chosen, users);
  };
  const Names warming = optim::schedule_names([](const optim::ScheduleRow& row) { return row.warms_up; });
  optimizer_settings.warn_of_idle(optim);
  const std::string& schedule = optim::schedule_name(run.schedule.kind);
  schedule_settings.warn_of_idle(schedule);
  belong({"warmup-steps", "warmup-ratio"}, "lr-scheduler-type", schedule, warming);
  belong({"loss-scale", "initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"},
         "precision", precision, {"fp16"});
  if (run.drop_last && train::continues_epochs(run))
    log::warning("--drop-last has no effect: batches that grow or count tokens continue in the next epoch");
  RankOptions::warn_of_idle_options(*arguments_);
}

bool TrainingOptions::starts_anew() const {
  const auto none_in = [&](const fs::path& folder) {
    return train::list_checkpoints(folder / "checkpoints").empty();
  };
  return run.resume == "never" ||
         (run.resume == "auto" && none_in(run.output) && none_in(run.output / kHeadRun));
}

void TrainingOptions::refuse_evaluation_options(const std::string& remedy) const {
  const auto refuse = [&](const std::string& option) {
    throw InputError("usage",
                     "{} needs evaluations, and there is nothing to evaluate on; give {}, or leave it out",
                     option, remedy);
  };
  if (run.patience > 0) refuse(fmt::format("--patience {}", run.patience));
  if (run.eval_steps > 0) refuse(fmt::format("--eval-steps {}", run.eval_steps));
  if (!best_metric.empty()) refuse("--metric-for-best-model " + best_metric);
}

train::TrainerOptions TrainingOptions::trainer() const {
  train::TrainerOptions result = run;
  const optim::ScheduleRow& row = optim::schedule_row(run.schedule.kind);
  for (const optim::Setting& setting : row.settings)
    setting.set(&result.schedule, schedule_settings.value_of(setting).value_or(row.usual(setting)));
  result.precision = parse_precision(precision);
  if (run.loss_scale.fixed_scale == 0) result.loss_scale.fixed_scale.reset();
  return result;
}

optim::OptimizerSpec TrainingOptions::optimizer() const {
  optim::OptimizerSpec spec = optim::usual_optimizer(optim);
  spec.set("learning_rate", learning_rate);
  spec.set("weight_decay", weight_decay);
  for (const optim::Setting& setting : spec.kind().settings)
    if (const auto value = optimizer_settings.value_of(setting)) spec.set(setting.name, *value);
  return spec;
}

at::ScalarType TrainingOptions::dtype() const {
  return precision == "fp64" ? at::kDouble : at::kFloat;
}

int report_result(const train::FitResult& result, const train::TrainerOptions& options,
                  const comm::Group& group, const OrderedJson& beside_scores, const std::string& next) {
  group.barrier();
  if (result.interrupted) {
    log::info("repeat the command to resume (the run is in {})", options.output.string());
    return static_cast<int>(ExitCode::interrupted);
  }
  if (group.rank() > 0) return 0;
  OrderedJson json;
  for (const auto& [name, value] : result.best_evaluation) json[name] = value;
  if (!result.best_evaluation.empty()) {
    json["best_step"] = result.best_step;
    if (beside_scores.is_object()) json.update(beside_scores);
  }
  json["last_loss"] = result.loss;
  json["steps"] = result.step;
  json["seconds"] = result.seconds;
  log::info("the model{} is in {}",
            result.best_step > 0 ? fmt::format(" of step {}, the best evaluation,", result.best_step) : "",
            (options.output / "model").string());
  if (!next.empty()) log::info("next: {}", next);
  fmt::print("{}\n", json_text(json));
  return 0;
}

}  // namespace funicular::cli
