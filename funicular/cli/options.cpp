#include "funicular/cli/options.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/processor_limit.h"
#include "funicular/cli/places.h"
#include "funicular/comm/together.h"
#include "funicular/launch/environment.h"
#include "funicular/model/pretrained.h"
#include "funicular/nn/precision_choice.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/train/batching.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/resume.h"
#include "funicular/train/saved_model.h"

namespace funicular::cli {

namespace {

void declare_batch(TrainingOptions& options, Arguments& arguments) {
  arguments.section("Batches and length");
  arguments
      .add(
          "batch-size", "SEQUENCES", options.batch_size, Effect::result,
          "sequences per optimiser step, over all devices: the "
          "global batch. Any two of it, --micro-batch-size and --gradient-accumulation-steps imply the third")
      .common()
      .default_text("32")
      .range(1);
  arguments
      .add("micro-batch-size", "SEQUENCES", options.micro_batch_size, Effect::result,
           "sequences per forward pass")
      .default_text("the whole batch")
      .alias("per-device-train-batch-size")
      .range(1);
  arguments
      .add("gradient-accumulation-steps", "N", options.gradient_accumulation, Effect::result,
           "forward passes per optimiser step")
      .default_text("1")
      .range(1);
  declare_micro_batch_tokens(arguments, options.micro_batch_tokens,
                             "bounds the memory and does not change the result; 0: no limit");
  declare_eval_batch_size(arguments, options.eval_batch_size).default_text("as in training");
  arguments.add("max-steps", "STEPS", options.max_steps, Effect::result, "optimiser steps in all")
      .common()
      .default_text("by epochs")
      .range(1);
  arguments
      .add("num-train-epochs", "EPOCHS", options.num_train_epochs, Effect::result,
           "passes over the training data")
      .common()
      .default_text("3")
      .alias("epochs")
      .above(0);
  arguments.rivals({"max-steps", "num-train-epochs"});
  arguments.add("shuffle", options.shuffle, Effect::result,
                "a new order in each epoch; --no-shuffle: the order of the data");
  arguments
      .add("drop-last", options.drop_last, Effect::result, "leave out the last, shorter batch of each epoch")
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
  arguments
      .add("weight-decay", "RATE", options.weight_decay, Effect::result,
           "decay of all weights but biases and normalisations")
      .range(0);
  options.optimizer_settings.declare(arguments, "optim", rows);
}

void declare_schedule(TrainingOptions& options, Arguments& arguments) {
  arguments
      .add("lr-scheduler-type", "NAME", options.lr_scheduler_type, Effect::result,
           "shape of the learning rate")
      .choices(optim::schedule_names());
  arguments.add("warmup-steps", "STEPS", options.warmup_steps, Effect::result, "steps of linear warm-up")
      .default_text("0")
      .range(0);
  arguments
      .add("warmup-ratio", "SHARE", options.warmup_ratio, Effect::result, "warm-up as a share of all steps")
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
      .add("max-grad-norm", "NORM", options.max_grad_norm, Effect::result,
           "clip the global gradient norm; 0: do not")
      .range(0);
}

void declare_saving(TrainingOptions& options, Arguments& arguments) {
  arguments.section("Evaluation and saving");
  arguments
      .add("logging-steps", "STEPS", options.logging_steps, Effect::none,
           "steps between records in metrics.jsonl; 0: none")
      .range(0);
  arguments
      .add("eval-steps", "STEPS", options.eval_steps, Effect::result,
           "steps between evaluations; 0: at the end of each epoch")
      .range(0);
  arguments
      .add("save-steps", "STEPS", options.save_steps, Effect::none,
           "steps between checkpoints; 0: only when interrupted")
      .range(0);
  arguments.add("save-total-limit", "N", options.save_total_limit, Effect::none, "checkpoints kept; 0: all")
      .range(0);
  arguments
      .add("patience", "N", options.patience, Effect::result,
           "stop after N evaluations without a better one; 0: never")
      .common()
      .alias("early-stopping-patience")
      .range(0);
  arguments
      .add("metric-for-best-model", "NAME", options.best_metric, Effect::result,
           "the metric that decides which model is kept; of equal ones the smaller loss")
      .default_text("the task's");
  arguments
      .add("resume", "auto|never|PATH", options.resume, Effect::result,
           "go on from the newest valid checkpoint of --output, from "
           "none, or from the one in PATH")
      .alias("resume-from-checkpoint");
}

void declare_arithmetic(TrainingOptions& options, Arguments& arguments) {
  arguments.section("Machine and randomness");
  arguments
      .add("precision", "NAME", options.precision, Effect::result,
           "arithmetic; auto: bf16 where it is faster, else fp32, and that of the run that goes on")
      .common()
      .choices({kAutoPrecision, "fp32", "fp64", "bf16", "fp16"})
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
  arguments
      .add("loss-scale", "S", options.loss_scale, Effect::result, "of fp16: a static loss scale; 0: dynamic")
      .range(0);
  arguments
      .add("initial-loss-scale", "S", options.scaler.initial_scale, Effect::result,
           "of fp16: the dynamic scale at first")
      .above(0);
  arguments
      .add("min-loss-scale", "S", options.scaler.min_scale, Effect::result,
           "of fp16: the dynamic scale's floor")
      .above(0);
  arguments
      .add("loss-scale-window", "STEPS", options.scaler.growth_interval, Effect::result,
           "of fp16: steps without overflow before the dynamic scale doubles")
      .range(1);
  arguments
      .add("hysteresis", "N", options.scaler.hysteresis, Effect::result,
           "of fp16: overflows that it takes to halve the dynamic scale")
      .range(1);
  arguments
      .add("recompute", "NAME", options.recompute, Effect::none,
           "activations computed again in the backward pass, to save memory: of each layer (full), of "
           "attention "
           "(selective), of groups of layers (sqrt); does not change the result")
      .choices({"none", "full", "selective", "sqrt"});
  arguments
      .add(
          "gradient-checkpointing", [&options] { options.recompute = "full"; }, Effect::none,
          "as --recompute full")
      .hidden();
  arguments.rivals({"recompute", "gradient-checkpointing"});
  declare_seed(arguments, options.seed, "of every random choice");
  arguments
      .add("num-workers", "N", options.num_workers, Effect::none,
           "threads that prepare batches; does not change the result")
      .alias("dataloader-num-workers")
      .range(0, 256);
}

template <class Whole>
Option& declare_length(Arguments& arguments, Whole& target, const std::string& longer, int64_t least) {
  return arguments
      .add("max-length", "TOKENS", target, Effect::result,
           "longest sequence, special tokens included; " + longer)
      .common()
      .alias("max-seq-length")
      .range(static_cast<double>(least));
}

}  // namespace

Option& declare_model(Arguments& arguments, fs::path& target, std::string help, std::string value) {
  return arguments.add("model", std::move(value), target, Effect::input, std::move(help))
      .alias("model-name-or-path")
      .required();
}

Option& declare_max_length(Arguments& arguments, int64_t& target, const std::string& longer, int64_t least) {
  return declare_length(arguments, target, longer, least);
}

Option& declare_max_length(Arguments& arguments, std::optional<int64_t>& target, const std::string& longer,
                           int64_t least) {
  return declare_length(arguments, target, longer, least);
}

Option& declare_eval_batch_size(Arguments& arguments, std::optional<int64_t>& target) {
  return arguments
      .add("eval-batch-size", "SEQUENCES", target, Effect::rounding,
           "sequences per forward pass in evaluation")
      .alias("per-device-eval-batch-size")
      .range(1);
}

Option& declare_micro_batch_tokens(Arguments& arguments, int64_t& target, const std::string& remark,
                                   int64_t least) {
  return arguments
      .add("micro-batch-tokens", "TOKENS", target, Effect::rounding,
           "real tokens per forward pass at most; " + remark)
      .common()
      .range(static_cast<double>(least));
}

Option& declare_inference_precision(Arguments& arguments, std::string& target,
                                    const std::vector<std::string>& more) {
  std::vector<std::string> names{kAutoPrecision};
  names.insert(names.end(), model::inference_precisions().begin(), model::inference_precisions().end());
  names.insert(names.end(), more.begin(), more.end());
  return arguments
      .add("precision", "NAME", target, Effect::result,
           "arithmetic; auto: bf16 where it is faster, else fp32")
      .common()
      .choices(std::move(names));
}

std::string resolve_inference_precision(const std::string& precision, at::Device device) {
  if (precision != kAutoPrecision) return precision;
  const nn::PrecisionChoice choice = nn::choose_precision(device);
  log::info("precision: {}, {} (--precision auto)", choice.name, choice.reason);
  return choice.name;
}

Option& declare_seed(Arguments& arguments, int64_t& target, std::string of) {
  return arguments.add("seed", "N", target, Effect::result, std::move(of)).common().range(0);
}

void DeviceOptions::declare(Arguments& arguments, Effect of_device, Effect of_threads) {
  arguments.add("device", "NAME", device, of_device, "where to compute")
      .common()
      .choices({"cpu", "cuda"})
      .accept("gpu", "cuda");
  arguments
      .add(
          "use-cpu", [this] { device = "cpu"; }, of_device, "as --device cpu")
      .hidden();
  arguments.rivals({"device", "use-cpu"});
  arguments.add("threads", "N", threads, of_threads, "threads of the computation")
      .default_text("all cores, or what the container may use")
      .range(1, 4096);
}

void DeviceOptions::apply() const {
  if (device == "cuda" && !at::hasCUDA())
    throw InputError("device",
                     "--device cuda: this LibTorch was built without CUDA, or no CUDA device is visible. Use "
                     "--device cpu, or build with TORCH_DIR set to a CUDA build of LibTorch");
  if (device == "cuda" && !funicular::device::has_cuda_kernels())
    throw InputError(
        "device",
        "--device cuda: this funicular was built without nvcc; use --device cpu, or install the CUDA "
        "toolkit and build again");
  if (threads > 0)
    at::set_num_threads(static_cast<int>(threads));
  else if (!std::getenv("OMP_NUM_THREADS"))
    at::set_num_threads(threads_within_quota(at::get_num_threads(), processor_quota()));
}

void TrainingOptions::declare(Arguments& arguments) {
  arguments_ = &arguments;
  arguments
      .add("output", "RUN", output, Effect::output,
           "folder of the run: checkpoints, metrics and, in RUN/model, the model")
      .common()
      .alias("output-dir")
      .required();
  declare_batch(*this, arguments);
  declare_optimisation(*this, arguments);
  declare_saving(*this, arguments);
  declare_arithmetic(*this, arguments);
  device.declare(arguments);
  RankOptions::declare(arguments);
}

void TrainingOptions::apply() {
  // transformers writes a metric of evaluations so.
  if (best_metric.starts_with("eval_")) best_metric.erase(0, std::string_view("eval_").size());
  if (max_steps && num_train_epochs)
    throw InputError("usage", "--max-steps {} and --num-train-epochs {} are both given; give one of them",
                     *max_steps, *num_train_epochs);
  if (warmup_steps && warmup_ratio && *warmup_steps > 0 && *warmup_ratio > 0)
    throw InputError("usage", "--warmup-steps {} and --warmup-ratio {} are both given; give one of them",
                     *warmup_steps, *warmup_ratio);
  optimizer().check();
  const bool choose = precision == kAutoPrecision;
  if (choose) precision = "fp32";  // until all ranks are there
  const launch::Environment place = launch::read_environment();
  settle(place.size);
  require_place(record_passes, "--record-passes");
  require_ending(record_passes, "--record-passes", {"json"});
  optim::check(trainer().schedule);
  train::plan_batches(trainer(), parts(place.size), pieces());  // contradictions, before files are read
  if (device.device != "cpu" && !offload_optimizer.empty())
    throw InputError("device",
                     "--offload-optimizer is for the CPU; on --device {} the state lies in its memory",
                     device.device);
  if (device.device != "cpu" &&
      (place.size > 1 || (strategy != "auto" && strategy != "single" && strategy != "ddp")))
    throw InputError("device",
                     "--device {} is for one process and one GPU yet; expected --device cpu, or one rank",
                     device.device);
  device.apply();
  if (device.threads == 0) share_threads(place);
  if (place.size == 1) guard_ = std::make_shared<InterruptGuard>();
  group_ = comm::Group::from_environment(
      {.timeout = std::chrono::hours(
           4),  // the others wait while rank 0 tokenises or saves; the dead are noticed sooner
       .interface = interface,
       .check_collectives = debug_collectives,
       .fixed_order = deterministic});
  if (!guard_) guard_ = std::make_shared<InterruptGuard>();
  // What all ranks would say is said once.
  if (group_.rank() > 0 && !log::enabled(log::Level::debug)) log::set_level(log::Level::error);
  warn_of_layout(group_.size());
  if (choose) choose_precision();
  warn_of_idle_options();
  strategy_factory()();
}

void TrainingOptions::choose_precision() {
  const std::string choice = comm::from_first(group_, [&] {
    const std::string earlier = train::precision_of_run(output, resume);
    const nn::PrecisionChoice own = nn::choose_precision(device.place());
    return earlier.empty() ? fmt::format("{} {}", own.name, own.reason) : earlier + " as the run began";
  });
  const size_t blank = choice.find(' ');
  precision = choice.substr(0, blank);
  log::info("precision: {}, {} (--precision auto)", precision, choice.substr(blank + 1));
}

void TrainingOptions::check_output(std::initializer_list<fs::path> inputs) const {
  std::error_code ignored;
  for (const fs::path& input : inputs)
    for (const char* name : {"model", "checkpoints", kHeadRun}) {
      const fs::path replaced = fs::weakly_canonical(output / name, ignored);
      const fs::path relative = fs::weakly_canonical(input, ignored).lexically_relative(replaced);
      if (!input.empty() && fs::exists(input, ignored) && !relative.empty() && *relative.begin() != "..")
        throw InputError(
            "usage",
            "--output {} holds {}, which this run reads and would replace: it could not be given "
            "again. Choose another --output, or copy the input to another place first",
            output.string(), input.string());
    }
  require_folder_name(output, "--output");
  train::check_saved_model(output);
  warn_of_other_files(output);
}

void TrainingOptions::warn_of_idle_options() const {
  using Names = std::vector<std::string>;
  const auto belong = [&](const Names& options, const char* chooser, const std::string& chosen,
                          const Names& users) {
    warn_unless_used(*arguments_, options, fmt::format("--{} {}", chooser, chosen), chosen, users);
  };
  const Names warming = optim::schedule_names([](const optim::ScheduleRow& row) { return row.warms_up; });
  optimizer_settings.warn_of_idle(optim);
  schedule_settings.warn_of_idle(lr_scheduler_type);
  belong({"warmup-steps", "warmup-ratio"}, "lr-scheduler-type", lr_scheduler_type, warming);
  belong({"loss-scale", "initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"},
         "precision", precision, {"fp16"});
  RankOptions::warn_of_idle_options(*arguments_);
}

bool TrainingOptions::starts_anew() const {
  const auto none_in = [&](const fs::path& run) {
    return train::list_checkpoints(run / "checkpoints").empty();
  };
  return resume == "never" || (resume == "auto" && none_in(output) && none_in(output / kHeadRun));
}

void TrainingOptions::refuse_evaluation_options(const std::string& remedy) const {
  const auto refuse = [&](const std::string& option) {
    throw InputError("usage",
                     "{} needs evaluations, and there is nothing to evaluate on; give {}, or leave it out",
                     option, remedy);
  };
  if (patience > 0) refuse(fmt::format("--patience {}", patience));
  if (eval_steps > 0) refuse(fmt::format("--eval-steps {}", eval_steps));
  if (!best_metric.empty()) refuse("--metric-for-best-model " + best_metric);
}

train::TrainerOptions TrainingOptions::trainer() const {
  train::TrainerOptions result;
  result.output = output;
  result.max_steps = max_steps.value_or(0);
  result.num_train_epochs = num_train_epochs.value_or(0);
  result.batch_size = batch_size.value_or(0);
  result.micro_batch_size = micro_batch_size.value_or(0);
  result.gradient_accumulation = gradient_accumulation.value_or(0);
  result.micro_batch_tokens = micro_batch_tokens;
  result.eval_batch_size = eval_batch_size.value_or(0);
  result.shuffle = shuffle;
  result.drop_last = drop_last;
  result.schedule.kind = optim::parse_schedule(lr_scheduler_type);
  result.schedule.warmup_steps = warmup_steps.value_or(0);
  result.schedule.warmup_ratio = warmup_ratio.value_or(0);
  const optim::ScheduleRow& row = optim::schedule_row(result.schedule.kind);
  for (const optim::Setting& setting : row.settings)
    setting.set(&result.schedule, schedule_settings.value_of(setting).value_or(row.usual(setting)));
  result.max_grad_norm = max_grad_norm;
  result.seed = static_cast<uint64_t>(seed);
  result.precision = parse_precision(precision);
  result.loss_scale = scaler;
  if (loss_scale > 0) result.loss_scale.fixed_scale = loss_scale;
  result.recompute = parse_recompute(recompute);
  result.logging_steps = logging_steps;
  result.whole_model_after = false;  // commands read the folder that it leaves
  result.save_steps = save_steps;
  result.save_total_limit = save_total_limit;
  result.eval_steps = eval_steps;
  result.patience = patience;
  result.resume = resume;
  result.num_workers = static_cast<int>(num_workers);
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
                  const comm::Group& group, const OrderedJson& beside_scores) {
  group.barrier();
  if (result.interrupted) {
    log::info("the same command goes on from there (the run is in {})", options.output.string());
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
  fmt::print("{}\n", json_text(json));
  return 0;
}

}  // namespace funicular::cli
