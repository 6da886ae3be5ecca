#include "funicular/train/run_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"
#include "funicular/optim/schedules.h"
#include "funicular/train/records.h"
#include "funicular/train/trainer_options.h"

namespace funicular::train {

namespace {

std::string describe_data(const Source& data) {
  return fmt::format("{} samples, hash {}", data.size(), hash_text(data.fingerprint()));
}

/// "none" where the precision needs no scale.
std::string describe_loss_scale(const TrainerOptions& options) {
  const optim::LossScalerOptions& o = options.loss_scale;
  if (options.precision != Precision::fp16) return "none";
  if (o.fixed_scale) return fmt::format("static {}", *o.fixed_scale);
  return fmt::format("dynamic from {}, times {} after {} steps, times {} after {} overflows, in [{}, {}]",
                     o.initial_scale, o.growth_factor, o.growth_interval, o.backoff_factor, o.hysteresis,
                     o.min_scale, o.max_scale);
}

const std::string& name_of(BatchStatistics statistics) {
  return batch_statistics_names()[static_cast<size_t>(statistics)];
}

OrderedJson describe_batch_rate(const Run& run) {
  const optim::BatchRate& rate = run.options.batch_rate;
  return {{"rule", optim::rate_scaling_names()[static_cast<size_t>(rate.rule)]},
          {"base_batch_size", rate.base_batch},
          {"batch_size", run.plan.batch},
          {"factor", optim::rate_factor(rate, run.plan.batch)},
          {"base_learning_rate", run.base_rate}};
}

/// Sizes in sequences are left out where a batch counts tokens and nothing limits its sequences.
OrderedJson describe_batch(const Run& run) {
  const TrainerOptions& o = run.options;
  const bool tokens = run.plan.batch_tokens > 0;
  OrderedJson batch = OrderedJson::object();
  batch[tokens ? "batch_tokens" : "batch_size"] = run.plan.batch;
  if (!tokens || o.micro_batch_size > 0) batch["micro_batch_size"] = run.plan.micro_batch;
  if (!tokens) batch["gradient_accumulation"] = run.plan.accumulation;
  batch["micro_batch_tokens"] = run.plan.tokens;
  batch["shuffle"] = o.shuffle;
  batch["drop_last"] = o.drop_last && !continues_epochs(o);
  if (o.distinct_batches) batch["distinct"] = true;
  if (o.batch_warmup_steps > 0)
    batch["warmup"] = {{"start", o.batch_warmup_start}, {"steps", o.batch_warmup_steps}};
  return batch;
}

}  // namespace

std::map<std::string, std::string> identity_of(const Run& run) {
  const TrainerOptions& o = run.options;
  std::map<std::string, std::string> identity = o.identity;
  identity["data"] = describe_data(run.train);
  identity[o.batch_tokens > 0 ? "batch_tokens" : "batch_size"] = std::to_string(run.plan.batch);
  if (o.batch_warmup_steps > 0)
    identity["batch_warmup"] = fmt::format("from {} in {} steps", o.batch_warmup_start, o.batch_warmup_steps);
  identity["seed"] = std::to_string(o.seed);
  identity["shuffle"] = o.shuffle ? "true" : "false";
  identity["drop_last"] = o.drop_last && !continues_epochs(o) ? "true" : "false";
  if (o.distinct_batches) identity["distinct_batches"] = "true";
  identity["precision"] = precision_name(o.precision);
  identity["optimizer"] = optim::optimizer_name(run.optimizer);
  identity["trainable"] = fmt::format("{}", fmt::join(o.trainable, ","));
  identity["frozen"] = fmt::format("{}", fmt::join(o.frozen, ","));
  return identity;
}

std::map<std::string, std::string> settings_of(const Run& run) {
  const TrainerOptions& o = run.options;
  std::map<std::string, std::string> settings{
      {"max_steps", std::to_string(run.max_steps)},
      {"optimizer", optim::describe(run.optimizer).dump()},
      {"schedule", optim::describe_in_words(run.schedule, run.max_steps)},
      {"max_grad_norm", fmt::format("{}", o.max_grad_norm)},
      {"loss_scale", describe_loss_scale(o)},
      {"evaluation_data", run.evaluation.data ? describe_data(*run.evaluation.data) : "none"},
      {"eval_steps", std::to_string(o.eval_steps)},
      {"best_metric", o.best_metric},
      {"greater_is_better", o.greater_is_better ? "true" : "false"},
      {"patience", std::to_string(o.patience)}};
  if (o.batch_statistics != BatchStatistics::pass) settings["batch_statistics"] = name_of(o.batch_statistics);
  return settings;
}

void write_run_file(const Run& run, int64_t resumed_from, const OrderedJson& outcome) {
  const TrainerOptions& o = run.options;
  OrderedJson file = describe_environment();
  file["seed"] = o.seed;
  file["precision"] = precision_name(o.precision);
  file["loss_scale"] = describe_loss_scale(o);
  file["optimizer"] = optim::describe(run.optimizer);
  if (o.batch_rate.rule != optim::RateScaling::none) file["learning_rate_scaling"] = describe_batch_rate(run);
  file["schedule"] = optim::describe(run.schedule, run.max_steps);
  file["batch"] = describe_batch(run);
  file["ranks"] = run.ranks;
  file["strategy"] = run.strategy;
  if (run.devices > 1) file["devices"] = run.devices;
  file["max_steps"] = run.max_steps;
  file[continues_epochs(o) ? "steps_in_first_epoch" : "steps_per_epoch"] = run.steps_per_epoch;
  file["options"] = {{"max_grad_norm", o.max_grad_norm},
                     {"recompute", recompute_name(o.recompute)},
                     {"batch_statistics", name_of(o.batch_statistics)},
                     {"logging_steps", o.logging_steps},
                     {"save_steps", o.save_steps},
                     {"save_total_limit", o.save_total_limit},
                     {"eval_steps", o.eval_steps},
                     {"patience", o.patience},
                     {"best_metric", o.best_metric},
                     {"greater_is_better", o.greater_is_better},
                     {"resume", o.resume},
                     {"num_workers", o.num_workers},
                     {"trainable", o.trainable},
                     {"frozen", o.frozen}};
  file["model"] = {{"parameters", run.parameters}, {"trainable_parameters", run.trainable_parameters}};
  file["data"] = {
      {"train", {{"samples", run.train.size()}, {"fingerprint", hash_text(run.train.fingerprint())}}}};
  if (!run.corpora.is_null()) file["data"]["train"]["corpora"] = run.corpora;
  if (run.evaluation.data)
    file["data"]["evaluation"] = {{"samples", run.evaluation.data->size()},
                                  {"fingerprint", hash_text(run.evaluation.data->fingerprint())}};
  file["identity"] = identity_of(run);
  file["resumed_from"] = resumed_from;
  if (o.run_info.is_object()) file.update(o.run_info);
  if (!outcome.is_null()) file["result"] = outcome;
  write_file_atomically(o.output / "run.json", json_text(file, 2) + "\n");
}

OrderedJson finished_result(const fs::path& folder, int64_t step) {
  std::error_code error;
  if (!fs::exists(folder / "run.json", error)) return {};
  const auto run = parse_json_or_null<OrderedJson>(read_file(folder / "run.json"));
  if (!run.is_object() || !run.contains("result")) return {};
  const OrderedJson& result = run["result"];
  const bool ended_here = result.is_object() && result.value("step", OrderedJson()) == step &&
                          result.value("interrupted", OrderedJson()) == false;
  return ended_here ? result : OrderedJson();
}

}  // namespace funicular::train
