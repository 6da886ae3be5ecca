#include "funicular/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <fcntl.h>
#include <stdio.h>  // renameat2
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/progress.h"
#include "funicular/format/manifest.h"
#include "funicular/train/batching.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/prefetch.h"
#include "funicular/train/records.h"

namespace funicular::train {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

const std::vector<std::string> kPrecisions = {"fp32", "fp64", "bf16", "fp16"};  // in the order of Precision

at::ScalarType floating_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return at::kFloat;
    case Precision::fp64:
      return at::kDouble;
    case Precision::bf16:
    case Precision::fp16:
      break;
  }
  throw InputError("trainer", "precision {} is not supported by this version; use fp32 or fp64",
                   precision_name(precision));
}

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
  plan_batches(options);
  floating_type(options.precision);
  optim::warmup_steps(options.schedule, std::max<int64_t>(1, options.max_steps));
}

/// Gives every parameter and floating-point buffer the type. The tensor objects stay: modules hold them.
void convert(Model& model, at::ScalarType type) {
  const at::NoGradGuard no_gradient;
  for (const auto& parameter : model.parameters)
    if (parameter->compute.scalar_type() != type) {
      parameter->compute.mutable_grad().reset();  // of the old type
      parameter->compute.set_data(parameter->compute.detach().to(type));
      parameter->master = parameter->compute;
    }
  for (const Buffer& buffer : model.buffers)
    if (buffer.value.is_floating_point() && buffer.value.scalar_type() != type) {
      at::Tensor value = buffer.value;
      value.set_data(buffer.value.to(type));
    }
}

/// Applies TrainerOptions::trainable and frozen for its lifetime.
class Freezing {
 public:
  Freezing(Model& model, const TrainerOptions& options) {
    check_prefixes(model, options.trainable);
    check_prefixes(model, options.frozen);
    for (const auto& parameter : model.parameters) {
      before_.push_back({parameter.get(), parameter->trainable});
      const bool learns = parameter->trainable &&
                          (options.trainable.empty() || matches(parameter->name, options.trainable)) &&
                          !matches(parameter->name, options.frozen);
      set(*parameter, learns);
    }
  }
  ~Freezing() {
    for (const auto& [parameter, trainable] : before_) set(*parameter, trainable);
  }
  Freezing(const Freezing&) = delete;
  Freezing& operator=(const Freezing&) = delete;

 private:
  static bool matches(const std::string& name, const std::vector<std::string>& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  }

  static void check_prefixes(const Model& model, const std::vector<std::string>& prefixes) {
    std::vector<std::string> names;
    for (const auto& parameter : model.parameters) names.push_back(parameter->name);
    for (const std::string& prefix : prefixes) {
      if (std::any_of(names.begin(), names.end(),
                      [&](const std::string& name) { return name.starts_with(prefix); }))
        continue;
      const std::string near = nearest(prefix, names.data(), names.data() + names.size());
      throw InputError("trainer", "no parameter's name begins with \"{}\"; {} is one of the names", prefix,
                       near.empty() ? names.empty() ? "none" : names.front() : near);
    }
  }

  static void set(Parameter& parameter, bool learns) {
    parameter.trainable = learns;
    parameter.compute.set_requires_grad(learns);
    if (!learns) {
      parameter.compute.mutable_grad().reset();
      parameter.gradient.reset();
    }
  }

  std::vector<std::pair<Parameter*, bool>> before_;
};

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

constexpr const char* kModelStepFile = "training.json";

/// The step whose weights a folder written by Fit::save_model holds; 0 if there is none.
int64_t model_step(const fs::path& folder) {
  try {
    const fs::path path = folder / kModelStepFile;
    return json_get<int64_t>(read_json(path), "step", path.string());
  } catch (const InputError&) {
    return 0;
  }
}

/// run.json's result where a run into `folder` ended at `step`, else null.
OrderedJson finished_result(const fs::path& folder, int64_t step) {
  std::error_code error;
  if (!fs::exists(folder / "run.json", error)) return {};
  const OrderedJson run =
      OrderedJson::parse(read_file(folder / "run.json"), nullptr, /*allow_exceptions=*/false);
  if (!run.is_object() || !run.contains("result")) return {};
  const OrderedJson& result = run["result"];
  const bool ended_here = result.is_object() && result.value("step", OrderedJson()) == step &&
                          result.value("interrupted", OrderedJson()) == false;
  return ended_here ? result : OrderedJson();
}

/// Replaces `folder` by `replacement` in one step where the system can.
void replace_folder(const fs::path& replacement, const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder)) {
    fs::rename(replacement, folder, error);
  } else if (::renameat2(AT_FDCWD, replacement.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(replacement, error);
  } else {
    fs::remove_all(folder);
    fs::rename(replacement, folder, error);
  }
  if (error) throw RunError("trainer", "cannot put {} in place: {}", folder.string(), error.message());
}

struct Interrupted {};

/// Feeds micro-batches of `data` to `each` in the order of the data, until all are done.
template <class Each>
void for_each_evaluation_batch(const Source& data, const BatchPlan& plan, uint64_t seed,
                               at::ScalarType floating, Each each) {
  const int64_t size = data.size();
  for (int64_t begin = 0; begin < size; begin += plan.batch) {
    std::vector<data::Draw> draws;
    for (int64_t i = begin; i < std::min(size, begin + plan.batch); ++i) draws.push_back({i, i});
    GlobalBatch batch = collate(draws, data, plan, {seed, /*training=*/false}, floating);
    for (MicroBatch& micro_batch : batch.micro_batches) each(micro_batch);
  }
}

/// evaluate_batch: span of one micro-batch → EvalResult.
template <class EvaluateBatch>
std::map<std::string, double> run_evaluation(const Source& data, Metrics* metrics, const BatchPlan& plan,
                                             uint64_t seed, at::ScalarType floating,
                                             EvaluateBatch evaluate_batch) {
  if (data.size() == 0)
    throw InputError("evaluation", "the evaluation data is empty; expected at least one sample");
  std::map<std::string, double> weighted_sums;
  Counts counts;
  if (metrics) metrics->start();
  for_each_evaluation_batch(data, plan, seed, floating, [&](MicroBatch& batch) {
    const parallel::EvalResult part = evaluate_batch(std::span<const MicroBatch>(&batch, 1));
    add_counts(counts, part.counts);
    for (const auto& [name, sum] : part.sums) weighted_sums[name] += part.weights.at(name) * sum;
    if (metrics) metrics->add(batch, part.outputs.front());
  });
  double loss = 0;
  for (const auto& [name, sum] : weighted_sums) {
    const double count = count_of(counts, name);
    if (count != 0) loss += sum / count;
  }
  std::map<std::string, double> result = metrics ? metrics->finish(loss) : std::map<std::string, double>{};
  result["loss"] = loss;
  return result;
}

BatchPlan evaluation_plan(int64_t batch_size, int64_t tokens) {
  if (batch_size < 1)
    throw InputError("evaluation", "expected a batch size of at least 1, found {}", batch_size);
  return {batch_size, batch_size, 1, tokens};
}

std::string describe_data(const Source& data) {
  return fmt::format("{} samples, hash {}", data.size(), hash_text(data.fingerprint()));
}

/// One call of Trainer::fit.
class Fit {
 public:
  Fit(const TrainerOptions& options, const Callbacks& callbacks, const optim::OptimizerSpec& spec,
      Model& model, const Source& train, const Evaluation& evaluation)
      : options_(options),
        callbacks_(callbacks),
        spec_(spec),
        model_(model),
        train_(train),
        evaluation_(evaluation),
        plan_(plan_batches(options)),
        sampler_(train.size(), {.seed = options.seed,
                                .shuffle = options.shuffle,
                                .batch_size = plan_.batch,
                                .drop_last = options.drop_last}),
        floating_(floating_type(options.precision)) {
    const double epochs = options.num_train_epochs > 0 ? options.num_train_epochs : 3;
    max_steps_ = options.max_steps > 0
                     ? options.max_steps
                     : std::max<int64_t>(1, static_cast<int64_t>(std::ceil(
                                                epochs * static_cast<double>(sampler_.batches_per_epoch()))));
    optim::warmup_steps(options.schedule, max_steps_);
  }

  FitResult run(const StrategyFactory& factory);

 private:
  bool writes() const { return !options_.output.empty(); }
  fs::path checkpoints() const { return options_.output / "checkpoints"; }
  double epoch(int64_t step) const {
    return static_cast<double>(step) / static_cast<double>(sampler_.batches_per_epoch());
  }
  double rate(int64_t step) const {  // step is 1-based
    return optim::learning_rate(options_.schedule, optim::peak_learning_rate(spec_), step - 1, max_steps_);
  }
  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }
  bool evaluation_due() const {
    if (!evaluation_.data || state_.step == 0 || state_.evaluated_step == state_.step) return false;
    return state_.step == max_steps_ ||
           state_.step % (options_.eval_steps > 0 ? options_.eval_steps : sampler_.batches_per_epoch()) == 0;
  }
  bool out_of_patience() const {
    return options_.patience > 0 && state_.evaluations_without_gain >= options_.patience;
  }
  bool finished() const { return state_.step >= max_steps_ || out_of_patience(); }

  std::map<std::string, std::string> identity() const;
  std::map<std::string, std::string> settings() const;
  fs::path find_checkpoint() const;
  void resume();
  void check_resumable(const TrainingState& saved, const fs::path& checkpoint) const;
  void set_newer_aside(const fs::path& checkpoint) const;
  void find_best_model(const fs::path& checkpoint);
  void write_run_file(const OrderedJson& outcome) const;

  void train();
  parallel::StepResult step(const GlobalBatch& batch);
  [[noreturn]] void fail(const parallel::StepResult& result) const;
  void log_step(const parallel::StepResult& result);
  void evaluate();
  void check_evaluation();
  void note_evaluation();
  void save_model();
  void check_finite() const;
  void save();

  const TrainerOptions& options_;
  const Callbacks& callbacks_;
  const optim::OptimizerSpec& spec_;
  Model& model_;
  const Source& train_;
  const Evaluation& evaluation_;
  BatchPlan plan_;
  data::Sampler sampler_;
  at::ScalarType floating_;
  int64_t max_steps_ = 0;

  std::unique_ptr<parallel::Strategy> strategy_;
  std::unique_ptr<Records> records_;
  std::optional<Progress> progress_;
  TrainingState state_;
  FitResult result_;
  int64_t saved_step_ = -1;  ///< of the checkpoint in the run's folder that holds the present state; -1: none

  // Since the last record.
  int64_t window_steps_ = 0, window_tokens_ = 0;
  double window_seconds_ = 0, window_wait_ = 0;
};

std::map<std::string, std::string> Fit::identity() const {
  std::map<std::string, std::string> identity = options_.identity;
  identity["data"] = describe_data(train_);
  identity["batch_size"] = std::to_string(plan_.batch);
  identity["seed"] = std::to_string(options_.seed);
  identity["shuffle"] = options_.shuffle ? "true" : "false";
  identity["drop_last"] = options_.drop_last ? "true" : "false";
  identity["precision"] = precision_name(options_.precision);
  identity["optimizer"] = optim::optimizer_name(spec_);
  identity["trainable"] = join(options_.trainable);
  identity["frozen"] = join(options_.frozen);
  return identity;
}

std::map<std::string, std::string> Fit::settings() const {
  const optim::Schedule& schedule = options_.schedule;
  return {{"max_steps", std::to_string(max_steps_)},
          {"optimizer", optim::describe(spec_).dump()},
          {"schedule", fmt::format("{}, {} warm-up steps", optim::schedule_name(schedule.kind),
                                   optim::warmup_steps(schedule, max_steps_))},
          {"max_grad_norm", fmt::format("{}", options_.max_grad_norm)},
          {"evaluation_data", evaluation_.data ? describe_data(*evaluation_.data) : "none"},
          {"eval_steps", std::to_string(options_.eval_steps)},
          {"best_metric", options_.best_metric},
          {"greater_is_better", options_.greater_is_better ? "true" : "false"},
          {"patience", std::to_string(options_.patience)}};
}

fs::path Fit::find_checkpoint() const {
  const bool own = !list_checkpoints(checkpoints()).empty();
  if (options_.resume == "never") {
    if (own)
      throw InputError(
          "trainer",
          "{} holds checkpoints of an earlier run; resume it, or choose another folder, or remove that one",
          options_.output.string());
    return {};
  }
  if (options_.resume == "auto") {
    const fs::path newest = newest_valid_checkpoint(checkpoints());
    if (own && newest.empty())
      throw InputError("trainer", "no checkpoint in {} is valid; remove the folder to start anew",
                       checkpoints().string());
    return newest.empty() ? newest : fs::canonical(newest);
  }
  const fs::path path = options_.resume;
  if (!fs::is_directory(path))
    throw InputError("trainer", "cannot resume from {}: there is no such folder", path.string());
  fs::path found;
  if (!list_checkpoints(path / "checkpoints").empty())
    found = newest_valid_checkpoint(path / "checkpoints");
  else if (!list_checkpoints(path).empty())
    found = newest_valid_checkpoint(path);
  else if (const auto problem = format::verify_manifest(path); !problem)
    found = path;
  else
    throw InputError("trainer", "cannot resume from {}: {}", path.string(), *problem);
  if (found.empty())
    throw InputError("trainer", "cannot resume from {}: no checkpoint in it is valid", path.string());
  found = fs::canonical(found);  // "run/checkpoints/step-000010/" has that folder itself for its parent path
  if (own && !fs::equivalent(found.parent_path(), checkpoints()))
    throw InputError("trainer", "{} holds checkpoints of another run than {}; choose another folder",
                     options_.output.string(), found.string());
  return found;
}

void Fit::check_resumable(const TrainingState& saved, const fs::path& checkpoint) const {
  const auto difference = [](const std::map<std::string, std::string>& old_values,
                             const std::map<std::string, std::string>& values) {
    std::string text;
    const auto value_in = [](const auto& map, const std::string& name) {
      const auto found = map.find(name);
      return found == map.end() ? std::string("nothing") : found->second.empty() ? "\"\"" : found->second;
    };
    std::map<std::string, std::string> all = old_values;
    all.insert(values.begin(), values.end());
    for (const auto& [name, unused] : all)
      if (value_in(old_values, name) != value_in(values, name))
        text += fmt::format("{}{} was {} and is {}", text.empty() ? "" : "; ", name,
                            value_in(old_values, name), value_in(values, name));
    return text;
  };
  const std::string refused = difference(saved.identity, identity());
  if (!refused.empty())
    throw InputError(
        "trainer",
        "{} cannot be resumed, because this run differs: {}. Use the same settings, or another output folder",
        checkpoint.string(), refused);
  const std::string changed = difference(saved.settings, settings());
  if (!changed.empty()) log::warning("the run goes on with other settings than it began with: {}", changed);
}

void Fit::set_newer_aside(const fs::path& checkpoint) const {
  if (!writes()) return;
  for (const auto& [step, path] : list_checkpoints(checkpoints()))
    if (step > state_.step && fs::equivalent(path.parent_path(), checkpoint.parent_path())) {
      const fs::path aside = path.parent_path() / ("abandoned-" + path.filename().string());
      fs::remove_all(aside);
      fs::rename(path, aside);
      log::warning("{} is newer than where the run resumes; it is now {}", path.string(), aside.string());
    }
}

/// `output`/model must be that of the best evaluation: it is not where the run goes on in another folder, or
/// from an older step than that of the model.
void Fit::find_best_model(const fs::path& checkpoint) {
  const fs::path own = options_.output / "model", source = checkpoint.parent_path().parent_path() / "model";
  if (!writes() || state_.best_step == 0) return;
  std::error_code error;
  if (model_step(source) == state_.best_step) {
    if (fs::equivalent(source, own, error)) return;
    const fs::path temporary = options_.output / ".model-new";
    fs::remove_all(temporary);
    fs::copy(source, temporary, fs::copy_options::recursive);
    replace_folder(temporary, own);
    return;
  }
  log::warning(
      "the model of the best evaluation, at step {}, is no longer there; the next evaluation counts as the "
      "best so far",
      state_.best_step);
  state_.best_step = 0;
  state_.best_evaluation.clear();
  state_.evaluated_step =
      std::min(state_.evaluated_step, state_.step - 1);  // an evaluation of this step is done again
}

void Fit::resume() {
  if (!writes() && (options_.resume == "auto" || options_.resume == "never")) return;
  const fs::path checkpoint = find_checkpoint();
  if (!checkpoint.empty()) {
    TrainingState saved = read_state(checkpoint);
    check_resumable(saved, checkpoint);
    read_tensors(*strategy_, checkpoint);
    state_ = std::move(saved);
    set_newer_aside(checkpoint);
    std::error_code error;
    if (fs::equivalent(checkpoint.parent_path(), checkpoints(), error)) saved_step_ = state_.step;
    find_best_model(checkpoint);
    result_.resumed_from = state_.step;
    log::info("resumed from {} at step {} of {}", checkpoint.string(), state_.step, max_steps_);
  }
  state_.identity = identity();
  state_.settings = settings();
}

void Fit::write_run_file(const OrderedJson& outcome) const {
  const TrainerOptions& o = options_;
  OrderedJson run = describe_environment();
  run["seed"] = o.seed;
  run["precision"] = precision_name(o.precision);
  run["optimizer"] = optim::describe(spec_);
  run["schedule"] = {{"name", optim::schedule_name(o.schedule.kind)},
                     {"warmup_steps", optim::warmup_steps(o.schedule, max_steps_)}};
  run["batch"] = {{"batch_size", plan_.batch},
                  {"micro_batch_size", plan_.micro_batch},
                  {"gradient_accumulation", plan_.accumulation},
                  {"micro_batch_tokens", plan_.tokens},
                  {"shuffle", o.shuffle},
                  {"drop_last", o.drop_last}};
  run["max_steps"] = max_steps_;
  run["steps_per_epoch"] = sampler_.batches_per_epoch();
  run["options"] = {{"max_grad_norm", o.max_grad_norm},
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
  int64_t learning = 0;
  for (const auto& parameter : model_.parameters)
    if (parameter->trainable) learning += parameter->master.numel();
  run["model"] = {{"parameters", model_.parameter_count()}, {"trainable_parameters", learning}};
  run["data"] = {{"train", {{"samples", train_.size()}, {"fingerprint", hash_text(train_.fingerprint())}}}};
  if (evaluation_.data)
    run["data"]["evaluation"] = {{"samples", evaluation_.data->size()},
                                 {"fingerprint", hash_text(evaluation_.data->fingerprint())}};
  run["identity"] = identity();
  run["resumed_from"] = result_.resumed_from;
  if (o.run_info.is_object()) run.update(o.run_info);
  if (!outcome.is_null()) run["result"] = outcome;
  write_file_atomically(o.output / "run.json", run.dump(2) + "\n");
}

FitResult Fit::run(const StrategyFactory& factory) {
  const auto start = Clock::now();
  std::optional<RunLock> lock;
  if (writes()) {
    make_directories(options_.output);
    lock.emplace(options_.output);
    remove_leftovers(checkpoints());
  }
  convert(model_, floating_);
  const Freezing freezing(model_, options_);
  strategy_ = factory();
  strategy_->attach(model_, optim::make_optimizer(spec_));
  resume();
  const OrderedJson earlier = writes() ? finished_result(options_.output, state_.step) : OrderedJson();
  if (writes()) {
    write_run_file(finished() ? earlier : OrderedJson());
    records_ = std::make_unique<Records>(options_.output, state_.step, state_.evaluated_step);
  }
  ProgressOptions shown;
  shown.unit = "steps";
  shown.start = static_cast<uint64_t>(state_.step);
  if (options_.progress) progress_.emplace("train", static_cast<uint64_t>(max_steps_), shown);
  train();
  if (progress_) progress_->finish();
  if (model_.set_training) model_.set_training(false);
  result_.step = state_.step;
  result_.stopped_early = out_of_patience() && state_.step < max_steps_;
  result_.best_step = state_.best_step;
  result_.best_evaluation = state_.best_evaluation;
  result_.seconds = seconds_since(start);
  const bool did_nothing =
      !earlier.is_null() && result_.evaluation.empty() && result_.step == result_.resumed_from;
  if (writes() && !did_nothing)
    write_run_file({{"step", result_.step},
                    {"interrupted", result_.interrupted},
                    {"stopped_early", result_.stopped_early},
                    {"loss", result_.loss},
                    {"best_step", result_.best_step},
                    {"best_evaluation", result_.best_evaluation},
                    {"tokens", result_.tokens},
                    {"seconds", result_.seconds}});
  return result_;
}

void Fit::train() {
  const InterruptGuard guard;
  const RandomState random{options_.seed, /*training=*/true};
  Prefetcher<GlobalBatch> loader(
      state_.step, max_steps_, options_.num_workers, options_.num_workers + 1,
      [&](int64_t n) { return collate(sampler_.batch(n), train_, plan_, random, floating_); });
  try {
    evaluate();  // a run that was interrupted during an evaluation
    if (options_.save_steps > 0 && finished()) save();
    while (!finished()) {
      if (interrupt_requested()) throw Interrupted{};
      const auto start = Clock::now();
      const GlobalBatch batch = loader.next();
      window_wait_ += seconds_since(start);
      const parallel::StepResult result = step(batch);
      window_seconds_ += seconds_since(start);
      log_step(result);
      evaluate();
      if (options_.save_steps > 0 && (due(options_.save_steps) || finished())) save();
    }
    if (writes() &&
        model_step(options_.output / "model") != (state_.best_step > 0 ? state_.best_step : state_.step))
      save_model();
  } catch (const Interrupted&) {
    result_.interrupted = true;
    save();
    log::info("interrupted at step {} of {}{}", state_.step, max_steps_,
              writes() ? "; the state is saved, resume to go on" : "");
  }
}

parallel::StepResult Fit::step(const GlobalBatch& batch) {
  const parallel::StepResult result = strategy_->step(batch.micro_batches, batch.counts,
                                                      {.learning_rate = rate(state_.step + 1),
                                                       .max_gradient_norm = options_.max_grad_norm,
                                                       .step = state_.step + 1});
  if (!result.finite) fail(result);
  ++state_.step;
  state_.loss_sum += result.loss;
  ++state_.loss_steps;
  ++window_steps_;
  window_tokens_ += batch.tokens;
  result_.tokens += batch.tokens;
  result_.loss = result.loss;
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

void Fit::log_step(const parallel::StepResult& result) {
  if (callbacks_.on_step) callbacks_.on_step(state_.step, result);
  const double speed = static_cast<double>(window_tokens_) / std::max(window_seconds_, 1e-9);
  const int64_t memory = resident_memory();
  if (progress_)
    progress_->update(static_cast<uint64_t>(state_.step),
                      fmt::format("loss {:.4f}  {} tokens/s  {}B", result.loss, short_number(speed),
                                  short_number(static_cast<double>(memory))));
  if (!due(options_.logging_steps)) return;
  StepRecord record;
  record.step = state_.step;
  record.epoch = epoch(state_.step);
  record.loss = state_.loss_sum / static_cast<double>(state_.loss_steps);
  record.learning_rate = rate(state_.step);
  record.gradient_norm = result.gradient_norm;
  record.tokens_per_second = speed;
  record.step_seconds = window_seconds_ / static_cast<double>(window_steps_);
  record.wait_share = window_wait_ / std::max(window_seconds_, 1e-9);
  record.memory_bytes = memory;
  record.losses = result.losses;
  if (records_) records_->add(record);
  if (callbacks_.on_log) callbacks_.on_log(record);
  state_.loss_sum = 0;
  state_.loss_steps = 0;
  window_steps_ = window_tokens_ = 0;
  window_seconds_ = window_wait_ = 0;
}

void Fit::evaluate() {
  if (!evaluation_due()) return;
  const int64_t batch_size = options_.eval_batch_size > 0 ? options_.eval_batch_size : plan_.micro_batch;
  result_.evaluation =
      run_evaluation(*evaluation_.data, evaluation_.metrics, evaluation_plan(batch_size, plan_.tokens),
                     options_.seed, floating_, [&](std::span<const MicroBatch> batch) {
                       if (interrupt_requested()) throw Interrupted{};  // it is done again after the resume
                       return strategy_->evaluate(batch);
                     });
  check_evaluation();
  note_evaluation();
  if (records_) records_->add_evaluation(state_.step, epoch(state_.step), result_.evaluation);
  if (callbacks_.on_evaluate) callbacks_.on_evaluate(state_.step, result_.evaluation);
}

/// Saves before it throws: the training up to here is sound.
void Fit::check_evaluation() {
  if (!result_.evaluation.contains(options_.best_metric)) {
    save();
    std::vector<std::string> names;
    for (const auto& [name, value] : result_.evaluation) names.push_back(name);
    throw InputError("trainer", "the evaluation gives no metric named {}; it gives: {}", options_.best_metric,
                     join(names));
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
  state_.evaluations_without_gain = better ? 0 : state_.evaluations_without_gain + 1;
  if (better) {
    state_.best_step = state_.step;
    state_.best_evaluation = result_.evaluation;
    save_model();
  }
}

/// The last update can overflow without a loss that would show it.
void Fit::check_finite() const {
  const at::NoGradGuard no_gradient;
  const auto check = [&](const std::string& name, const at::Tensor& value) {
    if (value.is_floating_point() && !at::isfinite(value).all().item<bool>())
      throw RunError("trainer",
                     "step {}: {} is no longer finite after the update. Nothing of this step is saved; a "
                     "lower learning rate or a "
                     "longer warm-up may help",
                     state_.step, name);
  };
  for (const auto& parameter : model_.parameters) check(parameter->name, parameter->master);
  for (const Buffer& buffer : model_.buffers) check(buffer.name, buffer.value);
}

void Fit::save_model() {
  if (!writes()) return;
  check_finite();
  const fs::path temporary = options_.output / ".model-new";
  fs::remove_all(temporary);
  make_directories(temporary);
  if (callbacks_.save_model)
    callbacks_.save_model(temporary);
  else
    write_model_file(model_, temporary / "model.safetensors");
  write_file_atomically(temporary / kModelStepFile, OrderedJson{{"step", state_.step}}.dump() + "\n");
  replace_folder(temporary, options_.output / "model");
}

void Fit::save() {
  if (!writes() || saved_step_ == state_.step) return;
  check_finite();
  try {
    write_checkpoint(*strategy_, state_, checkpoints(), [&] { records_->sync(); });
  } catch (const RunError& error) {
    throw RunError("trainer",
                   "the checkpoint of step {} could not be written, the older ones are as they were: {}",
                   state_.step, std::string(error.what()));
  }
  saved_step_ = state_.step;
  prune_checkpoints(checkpoints(), options_.save_total_limit, state_.best_step);
}

}  // namespace

Precision parse_precision(const std::string& name) {
  const auto found = std::find(kPrecisions.begin(), kPrecisions.end(), name);
  if (found == kPrecisions.end())
    throw InputError("trainer", "unknown precision \"{}\"; expected one of: {}", name, join(kPrecisions));
  return static_cast<Precision>(found - kPrecisions.begin());
}

std::string precision_name(Precision precision) {
  return kPrecisions[static_cast<size_t>(precision)];
}

Trainer::Trainer(TrainerOptions options, StrategyFactory strategy, optim::OptimizerSpec optimizer)
    : options_(std::move(options)), strategy_(std::move(strategy)), optimizer_(std::move(optimizer)) {
  check_options(options_);
  optim::make_optimizer(optimizer_);
}

FitResult Trainer::fit(Model& model, const Source& train, const Evaluation& evaluation) {
  try {
    return Fit(options_, callbacks, optimizer_, model, train, evaluation).run(strategy_);
  } catch (const fs::filesystem_error& error) {
    throw RunError("trainer", "{}", std::string(error.what()));
  }
}

std::map<std::string, double> evaluate(const Model& model, const Source& data, Metrics* metrics,
                                       int64_t batch_size, int64_t batch_tokens, uint64_t seed) {
  const at::ScalarType floating =
      model.parameters.empty() ? at::kFloat : model.parameters.front()->compute.scalar_type();
  return run_evaluation(
      data, metrics, evaluation_plan(batch_size, batch_tokens), seed, floating,
      [&](std::span<const MicroBatch> batch) { return parallel::evaluate_micro_batches(model, batch); });
}

}  // namespace funicular::train
