// funicular finetune: a classifier from a pre-trained model.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/log.h"
#include "funicular/base/number.h"
#include "funicular/cli/command.h"
#include "funicular/cli/cut_texts.h"
#include "funicular/cli/missing_values.h"
#include "funicular/cli/options.h"
#include "funicular/cli/row_report.h"
#include "funicular/cli/stage_options.h"
#include "funicular/cli/task_options.h"
#include "funicular/comm/together.h"
#include "funicular/format/family.h"
#include "funicular/launch/environment.h"
#include "funicular/model/class_names.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/token_classifier.h"
#include "funicular/model/weights.h"
#include "funicular/objective/metrics.h"
#include "funicular/objective/registry.h"
#include "funicular/objective/tag_metrics.h"

namespace funicular::cli {

namespace {

constexpr size_t kMostGrades = 20;  // classes of a scale

/// With a decimal point or a decimal comma.
bool is_number(std::string_view text) {
  return read_number_with_comma(text).has_value();
}

class Finetune final : public Command {
 public:
  Finetune()
      : Command("finetune",
                "Trains a pre-trained model to classify texts or pairs of texts, to give each a number, or "
                "each of its words a "
                "tag. "
                "The files of the named "
                "tasks are GLUE's; "
                "--task custom takes any TSV, CSV or JSON lines file, --task tags words with tags (CoNLL, "
                "JSON lines). RUN/model is the model of the best "
                "evaluation, as a "
                "Hugging Face folder; the last line of output is one JSON object with its metrics.") {
    arguments.section("Input and output");
    declare_model(arguments, model_, "pre-trained model folder");
    task_options_.declare_name(arguments, eval::task_names_with_tags()).required();
    arguments.add("train", "FILE", train_file_, "training rows").alias("train-file").required();
    arguments.add("eval", "FILE", eval_file_, "rows to evaluate on; the best model is chosen by them")
        .alias("validation-file")
        .default_text("none");
    task_options_.declare_bad_rows(arguments);
    training_.declare(arguments);
    arguments.section("Objective");
    declare_max_length(arguments, max_length_, "longer rows are truncated").default_text(kDefaultLength);
    arguments.add("truncation", "NAME", truncation_, "what a pair that is too long loses")
        .choices(text::truncation_names());
    arguments
        .add("class-weights", "WEIGHT", class_weights_,
             "how much a row (of tags a word) of each class counts in training: a number for each class, by "
             "their names in order; or balanced, where all classes count as much in all")
        .default_text("1 each");
    arguments
        .add("label-smoothing", "SHARE", label_smoothing_,
             "in training, the share of a row that all classes get in equal parts")
        .alias("label-smoothing-factor")
        .range(0, 0.999);
    task_options_.declare(arguments);
  }

  int run() override {
    open();
    const auto objective =
        objective::make_classifier(*tokenizer_, config_,
                                   {.sequence = {static_cast<int32_t>(max_length_), note_.pair_truncation()},
                                    .metrics = task_.metrics,
                                    .loss = {class_weights(), label_smoothing_}});
    model::ModelOptions encoder = pretrained_->options(training_.dtype(), training_.device.place(),
                                                       model::classes_layer(config_, objective->head()));
    encoder.config = config_;
    encoder.seed = static_cast<uint64_t>(training_.seed);
    encoder.repeatable = training_.deterministic;
    Model model = objective->build(encoder);
    report_model(model, config_);
    load(model, objective->head());
    train::TrainerOptions options = trainer_options(*objective);
    const auto rows = objective->samples(train_store_);
    const train::DatasetSource seen(*objective, *rows);
    choose_stages(training_, model, seen, options);
    train::Trainer trainer(options, training_.strategy_factory(), training_.optimizer());
    const std::unique_ptr<Metrics> metrics = objective->metrics();
    trainer.callbacks.save_model = [&](const fs::path& folder) {
      format::ModelConfig saved = config_;
      saved.source["funicular"].update(metrics->kept());
      model::save_folder(model, saved, objective->head(), *tokenizer_, folder);
    };
    if (!eval_store_) return report_result(trainer.fit(model, seen), options, training_.group());
    const auto held_out = objective->samples(eval_store_);
    const train::DatasetSource unseen(*objective, *held_out);
    const train::FitResult result = trainer.fit(model, seen, {&unseen, metrics.get()});
    const int code = report_result(result, options, training_.group(),
                                   with_cut({}, cut_rows(*eval_store_, max_length_, *tokenizer_)));
    if (task_.multi_label && !result.interrupted && training_.group().rank() == 0) report_thresholds();
    return code;
  }

 private:
  void report_thresholds() const {
    log::info(
        "its config.json keeps the threshold that was best for each label; evaluate and predict use them, "
        "so "
        "that evaluate gives other scores than those above, which are at 0.5");
    constexpr int64_t kLeast = objective::MultiLabelMetrics::kLeastPositives;
    const std::vector<int64_t> rows = rows_of_classes(*eval_store_);
    std::vector<std::string> rare;
    for (size_t label = 0; label < rows.size(); ++label)
      if (rows[label] < kLeast) rare.push_back(config_.id2label[label]);
    if (!rare.empty())
      log::info("{} of {} labels keep the threshold 0.5, because fewer than {} rows of {} have them: {}",
                rare.size(), rows.size(), kLeast, eval_file_.string(), show_classes(rare));
  }

  void open() {
    if (eval_file_.empty()) training_.refuse_evaluation_options("--eval FILE");
    training_.apply();
    training_.check_output({model_, train_file_, eval_file_});
    pretrained_.emplace(model_);
    config_ = pretrained_->config();
    task_ = task_options_.task(arguments);
    if (!task_.tags) check_best_metric();
    pretrained_->fit_max_length(max_length_, arguments.given("max-length"));
    model::check_sizes(config_, model_);
    tokenizer_ = pretrained_->tokenizer();
    pretrained_->check_columns(task_.columns(), tokenizer_->sequence());
    open_stores();
    refuse_measurements();
    if (training_.group().rank() == 0) {
      if (!task_.regression) report_classes(*train_store_, train_file_);
      if (task_.multi_label) report_separator(*train_store_, task_.label_separator, train_file_);
      if (task_.tags) report_words_scored(config_.id2label);
      if (!task_.regression) warn_of_missing_labels(config_.id2label, train_file_);
      if (arguments.given("header") && !task_.layout.header &&
          train_store_->meta().labels == data::LabelKind::classes)
        warn_of_header_row(*train_store_, config_.id2label, train_file_);
      report_texts(*train_store_, train_file_, eval_store_.get(), eval_file_, max_length_, *tokenizer_);
    }
    note_ = {task_.name, task_.columns(), max_length_, truncation_, Json::object()};
    if (const Json columns = task_options_.note(); !columns.is_null()) note_.source[kColumnsNote] = columns;
    note_.store_in(config_);
  }

  /// Numbers with a fraction, and more of them than a scale has, are measured rather than chosen.
  void refuse_measurements() const {
    const std::vector<std::string>& names = config_.id2label;
    const bool fractions = std::all_of(names.begin(), names.end(), is_number) &&
                           std::any_of(names.begin(), names.end(), [](const std::string& name) {
                             return name.find_first_of(".,") != name.npos;
                           });
    if (task_.regression || !fractions) return;
    if (names.size() > kMostGrades)
      throw InputError("task",
                       "{}: the labels are {} different numbers ({}), which would be a class each; to learn "
                       "the numbers give "
                       "--task custom --regression, for a few classes round them first",
                       train_file_.string(), names.size(), show_classes(names));
    if (training_.group().rank() == 0)
      log::warning(
          "{}: the labels are {} numbers ({}), and each is a class; --regression learns them as numbers",
          train_file_.string(), names.size(), show_classes(names));
  }

  /// "contra 1, pro 2.5"
  std::string weights_by_name(const std::vector<double>& weights) const {
    std::vector<std::string> named;
    for (size_t i = 0; i < weights.size(); ++i)
      named.push_back(fmt::format("{} {:.4g}", config_.id2label[i], weights[i]));
    return show_classes(named);
  }

  /// Of --class-weights, one a class; empty: all the same.
  std::vector<double> class_weights() const {
    if (label_smoothing_ > 0 && (task_.regression || task_.multi_label))
      throw InputError("usage", "--label-smoothing is of one class a text or a word, not of {}",
                       task_.regression ? "--regression" : "--multi-label");
    if (class_weights_.empty()) return {};
    if (task_.regression || task_.multi_label)
      throw InputError("usage", "--class-weights is of one class a text or a word, not of {}",
                       task_.regression ? "--regression" : "--multi-label");
    const size_t classes = config_.id2label.size();
    std::vector<double> weights;
    if (class_weights_ == std::vector<std::string>{"balanced"}) {
      // Rows / (classes * rows of the class), as scikit-learn has it; of tags words.
      const std::vector<int64_t> counts = rows_of_classes(*train_store_);
      const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
      for (const int64_t rows : counts)
        weights.push_back(all / (static_cast<double>(classes) * static_cast<double>(rows)));
      return weights;
    }
    for (const std::string& text : class_weights_) {
      const auto value = read_number(text);
      if (!value || !(*value > 0))
        throw InputError("usage", "--class-weights expects numbers above 0, or balanced, found \"{}\"", text);
      weights.push_back(*value);
    }
    if (weights.size() != classes)
      throw InputError("usage", "--class-weights: there are {} classes ({}), found {} weights", classes,
                       show_classes(config_.id2label), weights.size());
    if (training_.group().rank() == 0) log::info("class weights: {}", weights_by_name(weights));
    return weights;
  }

  /// Rank 0 makes the stores, or verifies those that are there; the others find them. Of another host's ranks
  /// one verifies what it reads.
  void open_stores() {
    const comm::Group& group = training_.group();
    for (const bool first : {true, false})
      comm::together(group, [&] {
        if ((group.rank() == 0) == first) open_own_stores();
      });
    classes_of_model_ = model::class_names(config_);
    config_.id2label = train_store_->meta().label_names;
    config_.num_labels = task_.regression ? 1 : static_cast<int>(config_.id2label.size());
    config_.problem_type = task_.regression    ? "regression"
                           : task_.multi_label ? "multi_label_classification"
                           : task_.tags        ? ""
                                               : "single_label_classification";
    config_.architectures = {format::family_of(config_).class_of(
        (task_.tags ? model::token_classifier() : model::Head::classification).architecture)};
    if (task_.tags) choose_tag_metrics();
  }

  /// Which scores there are depends on what the tags mean.
  void choose_tag_metrics() {
    task_.metrics = objective::tag_metric_names(config_.id2label);
    task_.best_metric = task_.metrics.front();
    check_best_metric();
  }

  void open_own_stores() {
    const fs::path folder = training_.output / "data";
    const bool verify = training_.group().rank() == 0 || launch::read_environment().local_rank == 0;
    train_store_ =
        eval::open_task_store(task_, train_file_, "train", *tokenizer_, task_.label_names, folder, verify);
    const std::vector<std::string>& labels = train_store_->meta().label_names;
    if (labels.empty() && !task_.regression)
      throw InputError("task", "{}: no row has a label", train_file_.string());
    if (labels.size() < 2 && !task_.multi_label && !task_.regression)
      throw InputError("task", "{}: every row has the label \"{}\"; a classifier needs at least two",
                       train_file_.string(), fmt::join(labels, ""));
    if (train_store_->meta().tokens == 0)
      throw InputError("task", "{}: no row has a text; is --text-column the right one?",
                       train_file_.string());
    if (!eval_file_.empty())
      eval_store_ = eval::open_task_store(task_, eval_file_, "eval", *tokenizer_, labels, folder, verify);
  }

  /// A classifier in --model is the start of training where it has as many classes; otherwise a new one is
  /// made.
  void load(Model& model, const model::Head& head) const {
    const bool starts_anew = training_.starts_anew();
    const std::string classes = model::classes_layer(config_, head);
    const model::LoadReport report = pretrained_->load(model, starts_anew, classes, head);
    const std::vector<std::string>& to = config_.id2label;
    const std::vector<std::string> from = model::spelt_as(classes_of_model_, to);
    if (!report.mismatched.empty()) {
      if (starts_anew)
        log::warning(
            "{} has a classifier of {} classes ({}) and the training rows have {}: a new classifier, "
            "randomly initialised, takes its place",
            model_.string(), from.size(), show_classes(from), to.size());
      return;
    }
    const bool has_classifier =
        std::none_of(report.missing.begin(), report.missing.end(),
                     [&](const std::string& name) { return name.starts_with(classes); });
    if (!has_classifier || from == to || task_.regression) return;
    if (std::is_permutation(from.begin(), from.end(), to.begin(), to.end()))
      model::reorder_classes(model, classes, from, to);
    else if (starts_anew)
      log::warning(
          "the classifier of {} is the start of training: its classes {} are taken for {}, in this order",
          model_.string(), show_classes(from), show_classes(to));
  }

  void check_best_metric() const {
    const std::string& name = training_.best_metric;
    if (name.empty() || name == "loss") return;
    if (std::find(task_.metrics.begin(), task_.metrics.end(), name) == task_.metrics.end())
      throw InputError("usage", "--metric-for-best-model expects one of {}, loss for this task, found \"{}\"",
                       fmt::join(task_.metrics, ", "), name);
  }

  train::TrainerOptions trainer_options(const objective::Objective& objective) const {
    train::TrainerOptions options = training_.trainer();
    options.best_metric = training_.best_metric.empty() ? task_.best_metric : training_.best_metric;
    options.greater_is_better = objective::greater_is_better(options.best_metric);
    if (task_.regression) options.diverged_at = LossWatch::kGrowthOfSquares;
    options.identity = objective.identity();
    options.identity.merge(std::map<std::string, std::string>{
        {"task", task_.name},
        {"model", model::describe_model(config_)},
        {"initial_weights", pretrained_->weights_hash()},
        {"labels", hash_text(hash_bytes(fmt::format("{}", fmt::join(config_.id2label, "\n"))))},
        {"tokenizer", hash_text(tokenizer_->fingerprint())}});
    options.run_info = {{"command", "finetune"},
                        {"task", task_.name},
                        {"source_model", model_.string()},
                        {"train_file", train_file_.string()},
                        {"eval_file", eval_file_.string()},
                        {"labels", config_.id2label}};
    return options;
  }

  fs::path model_, train_file_, eval_file_;
  TaskOptions task_options_;
  int64_t max_length_ = 128;
  std::string truncation_ = "longest_first";
  std::vector<std::string> class_weights_;
  double label_smoothing_ = 0;
  TrainingOptions training_;

  eval::Task task_;
  std::optional<model::Pretrained> pretrained_;
  format::ModelConfig config_;  ///< with the classes of this run
  std::vector<std::string> classes_of_model_;
  model::TaskNote note_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::shared_ptr<const data::TokenStore> train_store_, eval_store_;
};

}  // namespace

std::unique_ptr<Command> make_finetune() {
  return std::make_unique<Finetune>();
}

}  // namespace funicular::cli
