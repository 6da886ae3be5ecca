#include "funicular/task/finetune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/comm/together.h"
#include "funicular/launch/environment.h"
#include "funicular/model/class_names.h"
#include "funicular/model/model_report.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/relative.h"
#include "funicular/model/sentence_encoder.h"
#include "funicular/model/weights.h"
#include "funicular/objective/layer_metrics.h"
#include "funicular/objective/metrics.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/held_out.h"
#include "funicular/task/label_report.h"
#include "funicular/task/registry.h"
#include "funicular/task/store.h"
#include "funicular/task/teacher_vectors.h"
#include "funicular/task/text_report.h"
#include "funicular/task/window_scores.h"

namespace funicular::task {

namespace {

void check_class_loss(const Task& task, const FinetuneOptions& options) {
  const data::ShareColumns& shares = task.files().shares;
  if (options.soft_temperature != 1 && !shares.has_shares())
    throw InputError("usage", "--soft-temperature works only with --soft-columns or --soft-labels");
  if (options.early_exit.wanted() && shares.any())
    throw InputError("usage",
                     "--early-exit learns one class per row; leave out --soft-columns, --soft-labels and "
                     "--weight-column");
  if (task.weighs_classes()) return;
  const ClassWeights& weights = options.class_weights;
  if (options.label_smoothing > 0 || weights.balanced || !weights.weights.empty())
    throw InputError("usage", "{} works only with one class per text or per word; {} gives {}",
                     options.label_smoothing > 0 ? "--label-smoothing" : "--class-weights",
                     task.type().more.empty() ? task.type().asked_for() : task.type().more,
                     task.type().gives);
}

std::optional<Baseline> measured_baseline(const data::TokenStore& trained, const data::TokenStore& evaluated,
                                          const std::vector<std::string>& known) {
  return find_baseline(trained, evaluated, [&](const std::string& metric) {
    return std::find(known.begin(), known.end(), metric) != known.end();
  });
}

/// The metrics of the task. The loss chooses the best model if the evaluated rows define no other choice.
MetricNames metrics_on(const Task& task, const std::vector<std::string>& labels, const data::TokenStore* rows,
                       const fs::path& file) {
  MetricNames names = task.metrics(labels);
  if (rows && !task.defines_best_metric({*rows, file}))
    names.earlier_best = std::exchange(names.best, "loss");
  return names;
}

void report_best_metric(const FinetuneOptions& options, const std::string& usual, const std::string& chosen) {
  if (options.best_metric.empty() && chosen == "loss" && usual != chosen)
    log::info("{}: these labels cannot tell models apart by {}, so the loss chooses the best model",
              options.eval_file.string(), usual);
}

void report_start(const Model& model, const model::Pretrained& start, const format::ModelConfig& config) {
  if (!start.is_table()) return model::report_model(model, config);
  log::info("the model: a table of {} tokens with {} numbers each", config.encoder.vocabulary,
            config.encoder.width);
}

class Finetuning {
 public:
  explicit Finetuning(const FinetuneOptions& options);
  RunResult run();

 private:
  bool leads() const { return o_.group.rank() == 0; }
  bool trains_exits() const { return o_.early_exit.wanted(); }
  void check_early_exit() const;
  MetricNames metric_names() const;
  void check_best_metric(const MetricNames& known) const;
  void open_stores();
  void open_own_stores();
  SequenceLimit limit() const;
  void report_rows() const;
  void describe_model();
  objective::ClassLoss class_loss() const;
  EmbeddingOptions embedding() const;
  Model make_model(const objective::Objective& objective) const;
  void load(Model& model, const model::Head& head) const;
  train::TrainerOptions trainer_options(const objective::Objective& objective) const;

  const FinetuneOptions& o_;
  const Task &task_, &eval_task_;
  const model::Pretrained pretrained_;
  format::ModelConfig config_;  ///< with the classes of this run
  const std::vector<std::string> classes_of_model_;
  int64_t max_length_ = kDefaultLength;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::shared_ptr<const data::TokenStore> train_store_, eval_store_;
};

Finetuning::Finetuning(const FinetuneOptions& options)
    : o_(options),
      task_(*options.task),
      eval_task_(options.eval_task ? *options.eval_task : *options.task),
      pretrained_(model::open_encoder(options.model, task_.texts_are_sequences())),
      config_(pretrained_.config()),
      classes_of_model_(model::class_names(config_)) {
  check_class_loss(task_, o_);
  check_early_exit();
  if (!trains_exits()) check_best_metric(task_.metrics(task_.label_names()));
  max_length_ = o_.max_length.value_or(task_.default_length(o_.model));
  pretrained_.fit_max_length(max_length_, o_.max_length.has_value());
  if (!pretrained_.is_table()) model::check_sizes(config_, pretrained_.path());
  tokenizer_ = pretrained_.tokenizer();
  pretrained_.check_columns(task_.texts(), tokenizer_->sequence());
  open_stores();
  describe_model();
  if (leads()) report_rows();
}

void Finetuning::check_early_exit() const {
  if (!trains_exits()) {
    if (o_.early_exit.exits_only)
      throw InputError("usage", "--exits-only works only with --early-exit, which says what the exits learn");
    if (o_.early_exit.pooling != EarlyExitOptions{}.pooling)
      throw InputError("usage", "--exit-pooling works only with --early-exit, which trains exits");
    return;
  }
  require_one_class(task_, "--early-exit");
  if (o_.early_exit.exits_only && o_.early_exit.training == ExitTraining::joint)
    throw InputError("usage",
                     "--exits-only and --early-exit joint contradict each other: joint trains the encoder");
  if (o_.early_exit.training != ExitTraining::joint &&
      !(o_.trainer.trainable.empty() && o_.trainer.frozen.empty()))
    throw InputError(
        "usage", "TrainerOptions::trainable and frozen must be empty: of a run with exits only these learn");
}

/// Exits are chosen by the mean accuracy of all layers.
MetricNames Finetuning::metric_names() const {
  MetricNames names = metrics_on(eval_task_, config_.id2label, eval_store_.get(), o_.eval_file);
  if (!trains_exits()) return names;
  names.all.insert(names.all.begin(), objective::kMeanLayerAccuracy);
  names.best = objective::kMeanLayerAccuracy;
  names.earlier_best.clear();
  return names;
}

void Finetuning::check_best_metric(const MetricNames& known) const {
  const std::string& name = o_.best_metric;
  if (known.all.empty() || name.empty() || name == "loss") return;
  if (std::find(known.all.begin(), known.all.end(), name) == known.all.end())
    throw InputError("usage", "--metric-for-best-model expects one of {}, loss for this task, found \"{}\"",
                     fmt::join(known.all, ", "), name);
}

/// Rank 0 makes the stores, or verifies existing ones; then all ranks open them. On each further host, one rank
/// verifies what it reads.
void Finetuning::open_stores() {
  for (const bool first : {true, false})
    comm::together(o_.group, [&] {
      if (leads() == first) open_own_stores();
    });
}

void Finetuning::open_own_stores() {
  const fs::path folder = o_.trainer.output / "data";
  StoreOptions options{.labels = task_.label_names(),
                       .verify = leads() || launch::read_environment().local_rank == 0,
                       .bad_rows = o_.bad_rows};
  train_store_ = open_store(task_, o_.train_file, "train", *tokenizer_, folder, options);
  task_.check_training({*train_store_, o_.train_file});
  if (o_.eval_file.empty()) return;
  options.labels = train_store_->meta().label_names;
  eval_store_ = open_store(eval_task_, o_.eval_file, "eval", *tokenizer_, folder, options);
}

void Finetuning::describe_model() {
  task_.describe_in(config_, train_store_->meta().label_names);
  check_best_metric(metric_names());
  model::TaskNote note = note_of(task_, max_length_, o_.truncation);
  if (trains_exits()) note.source[objective::kExitsNote] = exits_note(config_, o_.early_exit);
  note.store_in(config_);
}

SequenceLimit Finetuning::limit() const {
  return {task_.longest_row(max_length_), config_.encoder.longest_sequence(), task_.texts_are_sequences(),
          pretrained_.is_table()};
}

void Finetuning::report_rows() const {
  task_.report_training({*train_store_, o_.train_file});
  report_texts(*train_store_, o_.train_file, eval_store_.get(), o_.eval_file, limit(), *tokenizer_,
               task_.labels_follow_texts());
}

objective::ClassLoss Finetuning::class_loss() const {
  objective::ClassLoss loss{o_.class_weights.weights, o_.label_smoothing};
  if (o_.class_weights.balanced) loss.weights = balanced_weights(*train_store_, o_.train_file);
  if (loss.weights.empty() || o_.class_weights.balanced) return loss;
  const std::vector<std::string>& names = config_.id2label;
  if (loss.weights.size() != names.size())
    throw InputError("usage", "--class-weights: there are {} classes ({}), found {} weights", names.size(),
                     show_classes(names), loss.weights.size());
  std::vector<std::string> named;  // "contra 1", "pro 2.5"
  for (size_t i = 0; i < names.size(); ++i)
    named.push_back(fmt::format("{} {:.4g}", names[i], loss.weights[i]));
  if (leads()) log::info("class weights: {}", show_classes(named));
  return loss;
}

EmbeddingOptions Finetuning::embedding() const {
  EmbeddingOptions options = o_.embedding;
  options.folder = o_.model;
  return options;
}

/// Training starts from the classifier in the model's folder if the number of classes is equal; otherwise a new one
/// is made.
void Finetuning::load(Model& model, const model::Head& head) const {
  const bool anew = starts_anew(o_);
  const std::string classes = model::classes_layer(config_, head);
  const model::LoadReport report = pretrained_.load(model, anew, classes, head, model::kSentenceWeights,
                                                    trains_exits() ? model::kExits : "");
  const std::vector<std::string>& to = config_.id2label;
  const std::vector<std::string> from = model::spelt_as(classes_of_model_, to);
  if (!report.mismatched.empty()) {
    if (o_.early_exit.exits_only)
      throw InputError("usage",
                       "--exits-only: {} has {} classes, and the training rows have {}; expected the same",
                       o_.model.string(), from.size(), to.size());
    if (anew)
      log::warning(
          "{} has a classifier of {} classes ({}) and the training rows have {}: a new classifier, randomly "
          "initialised, takes its place",
          o_.model.string(), from.size(), show_classes(from), to.size());
    return;
  }
  const bool has_classifier =
      std::none_of(report.missing.begin(), report.missing.end(),
                   [&](const std::string& name) { return name.starts_with(classes); });
  if (o_.early_exit.exits_only && !has_classifier)
    throw InputError("usage", "--exits-only: {} has no classifier; give a fine-tuned model, or leave it out",
                     o_.model.string());
  if (!has_classifier || to.empty() || from == to) return;
  if (std::is_permutation(from.begin(), from.end(), to.begin(), to.end()))
    model::reorder_classes(model, classes, from, to);
  else if (anew)
    log::warning(
        "the classifier of {} is the start of training: its classes {} are taken for {}, in this order",
        o_.model.string(), show_classes(from), show_classes(to));
}

Model Finetuning::make_model(const objective::Objective& objective) const {
  const model::Head head = objective.head();
  model::ModelOptions encoder = pretrained_.options(o_.dtype, o_.device, model::classes_layer(config_, head));
  encoder.config = config_;
  encoder.seed = o_.trainer.seed;
  encoder.repeatable = o_.repeatable;
  if (!trains_exits() || o_.early_exit.training == ExitTraining::joint) model::check_repeatable(encoder);
  Model model = objective.build(encoder);
  report_start(model, pretrained_, config_);
  load(model, head);
  return model;
}

train::TrainerOptions Finetuning::trainer_options(const objective::Objective& objective) const {
  train::TrainerOptions options = o_.trainer;
  options.best_metric = choose_best_metric(o_, metric_names());
  if (leads()) report_best_metric(o_, task_.metrics(config_.id2label).best, options.best_metric);
  options.greater_is_better = objective::greater_is_better(options.best_metric);
  options.diverged_at = task_.diverged_at();
  options.identity.merge(objective.identity());
  options.identity.merge(std::map<std::string, std::string>{
      {"task", task_.name()},
      {"model", model::describe_model(config_)},
      {"initial_weights", pretrained_.weights_hash()},
      {"labels", hash_text(hash_bytes(fmt::format("{}", fmt::join(config_.id2label, "\n"))))},
      {"tokenizer", hash_text(tokenizer_->fingerprint())}});
  const OrderedJson info = {{"command", "finetune"},
                            {"task", task_.name()},
                            {"source_model", o_.model.string()},
                            {"train_file", o_.train_file.string()},
                            {"eval_file", o_.eval_file.string()},
                            {"labels", config_.id2label}};
  options.run_info = info;
  if (trains_exits()) {
    options.run_info["early_exit"] = exit_training_names().at(static_cast<size_t>(o_.early_exit.training));
    // Runs of programs without --exit-pooling read the first token and have no such key.
    if (o_.early_exit.pooling != ExitPooling::first)
      options.identity["exit_pooling"] = exit_pooling_names().at(static_cast<size_t>(o_.early_exit.pooling));
    if (o_.early_exit.training != ExitTraining::joint) options.trainable = {model::kExits};
  }
  return options;
}

RunResult Finetuning::run() {
  const objective::ClassLoss loss = class_loss();
  auto objective = task_.objective(
      *tokenizer_, config_,
      {.sequence = {static_cast<int32_t>(max_length_), text::parse_truncation(o_.truncation, "--truncation")},
       .labels = config_.id2label,
       .loss = loss,
       .soft = {.temperature = o_.soft_temperature},
       .embedding = embedding(),
       .ranking = o_.ranking});
  if (trains_exits()) objective = with_exits(std::move(objective), config_, o_.early_exit, loss);
  Model model = make_model(*objective);
  RunResult result{.options = trainer_options(*objective), .trained = train_store_};
  TaskSamples rows = task_.samples(*objective, *tokenizer_, train_store_, o_.train_file);
  if (leads()) report_windows(*rows.samples, o_.train_file);
  const train::DatasetSource seen(*objective, *rows.samples);
  TaskSamples held_out;
  if (eval_store_) held_out = eval_task_.samples(*objective, *tokenizer_, eval_store_, o_.eval_file);
  const std::unique_ptr<Metrics> of_texts = std::move((eval_store_ ? held_out : rows).metrics);
  const data::Dataset& measured = *(eval_store_ ? held_out : rows).samples;
  const std::unique_ptr<Metrics> over_windows = task_.over_windows(measured, *of_texts, nullptr);
  Metrics* const metrics = over_windows ? over_windows.get() : of_texts.get();
  const auto save = [&](const fs::path& folder) {
    format::ModelConfig saved = config_;
    saved.source["funicular"].update(metrics->kept());
    if (!pretrained_.is_table()) model::save_folder(model, saved, objective->head(), *tokenizer_, folder);
    objective->save_more(model, saved, *tokenizer_, folder);
  };
  if (!eval_store_) {
    result.fit = fit(model, o_, result.options, seen, {}, save);
    return result;
  }
  const train::DatasetSource unseen(*objective, *held_out.samples);
  result.fit = fit(model, o_, result.options, seen, {&unseen, metrics}, save);
  result.eval_task = o_.eval_task ? o_.eval_task : o_.task;
  result.eval_file = o_.eval_file;
  result.baseline = measured_baseline(*train_store_, *eval_store_, metric_names().all);
  result.cut = cut_rows(*eval_store_, limit(), *tokenizer_);
  if (!result.fit.interrupted && leads()) task_.report_trained({*eval_store_, o_.eval_file});
  return result;
}

}  // namespace

RunResult finetune(const FinetuneOptions& given) {
  FinetuneOptions options = given;
  take_teacher(options);
  hold_out_rows(options);
  // Weights are for training: rows to evaluate on need none.
  if (!options.eval_task && !options.task->files().shares.weight.empty()) {
    FileOptions unweighted = options.task->files();
    unweighted.shares.weight.clear();
    options.eval_task = with_files(*options.task, std::move(unweighted));
  }
  if (!options.early_exit.two_runs()) return Finetuning(options).run();
  require_one_class(*options.task, "--early-exit");
  FinetuneOptions encoder = options, exits = options;
  encoder.early_exit = {};
  encoder.trainer.output /= kEncoderRun;
  if (encoder.best_metric == objective::kMeanLayerAccuracy) encoder.best_metric.clear();
  if (encoder.trainer.resume != "never") encoder.trainer.resume = "auto";
  if (starts_anew(options)) {  // else the training of the exits has begun
    if (options.group.rank() == 0) log::info("fine-tuning, before the exits are trained");
    RunResult result = Finetuning(encoder).run();
    if (result.fit.interrupted) return result;
    if (options.group.rank() == 0) log::info("training the exits, the encoder frozen");
  }
  exits.model = encoder.trainer.output / "model";
  exits.early_exit.exits_only = true;
  return Finetuning(exits).run();
}

}  // namespace funicular::task
