// funicular evaluate: exact metrics of a model on labelled data.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"
#include "funicular/base/log.h"
#include "funicular/base/progress.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/cli/answer_file.h"
#include "funicular/cli/command.h"
#include "funicular/cli/cut_texts.h"
#include "funicular/cli/missing_values.h"
#include "funicular/cli/options.h"
#include "funicular/cli/row_report.h"
#include "funicular/cli/sharing_ranks.h"
#include "funicular/cli/task_options.h"
#include "funicular/comm/together.h"
#include "funicular/data/store_files.h"
#include "funicular/eval/answer_sheet.h"
#include "funicular/eval/evaluation_record.h"
#include "funicular/launch/environment.h"
#include "funicular/model/class_names.h"
#include "funicular/model/pretrained.h"
#include "funicular/model/token_classifier.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/registry.h"

namespace funicular::cli {

namespace {

/// Rows of a forward pass: at most, where its tokens are limited as well; where they are not.
constexpr int64_t kMostRows = 512, kRows = 32;

/// The task's labels in the order of the model's classes.
std::vector<std::string> labels_of_model(const eval::Task& task, const format::ModelConfig& config,
                                         const fs::path& model) {
  const std::vector<std::string> own = model::spelt_as(model::class_names(config), task.label_names);
  if (task.label_names.empty()) return own;
  if (own.size() != task.label_names.size())
    throw InputError("task", "{} has {} classes ({}); {} needs {} ({})", model.string(), own.size(),
                     fmt::join(own, ", "), task.name, task.label_names.size(),
                     fmt::join(task.label_names, ", "));
  if (std::is_permutation(own.begin(), own.end(), task.label_names.begin())) return own;
  if (own.front().rfind("LABEL_", 0) != 0)
    log::warning("the model calls its classes {}; they are taken for {}, in this order", fmt::join(own, ", "),
                 fmt::join(task.label_names, ", "));
  return task.label_names;
}

std::vector<std::string> tasks() {
  std::vector<std::string> names = eval::task_names_with_tags();
  names.push_back("mlm");
  return names;
}

class Evaluate final : public Command {
 public:
  Evaluate()
      : Command(
            "evaluate",
            "Prints one JSON object with the metrics of a fine-tuned model on a task's file. With "
            "--task mlm it gives the loss "
            "and perplexity of a masked language model on a token store. Under funicular launch the ranks "
            "share the rows: the same result, sooner.") {
    arguments.section("Input");
    declare_model(arguments, model_, "model folder");
    task_options_.declare_name(arguments, tasks()).default_text("what the model was fine-tuned for");
    arguments.add("data", "FILE|STORE", data_, "the rows; for mlm a token store")
        .alias("validation-file")
        .required();
    declare_max_length(arguments, max_length_, "longer rows are truncated")
        .default_text("as in fine-tuning, else the model's longest; mlm: 128");
    task_options_.declare_bad_rows(arguments);
    task_options_.declare(arguments);
    arguments.section("Answers");
    arguments.add("details", details_,
                  "also the scores of each class and the confusion matrix; of several labels a text, a "
                  "matrix for each label");
    arguments
        .add("predictions", "FILE", predictions_,
             "file for the label and the answer of each row; its ending sets the form: .jsonl, .json, .csv, "
             ".tsv")
        .default_text("none");
    arguments
        .add("output", "FOLDER", output_,
             "also a folder for funicular report: all of this, the model's size and speed, and mistakes with "
             "their texts")
        .default_text("none");
    arguments.section("Machine and randomness");
    declare_eval_batch_size(arguments, batch_size_)
        .default_text("as --micro-batch-tokens allows, " + std::to_string(kMostRows) +
                      " at most; without that limit " + std::to_string(kRows));
    declare_micro_batch_tokens(arguments, batch_tokens_, "0: no limit");
    declare_inference_precision(arguments, precision_, {"fp64"});
    declare_seed(arguments, seed_, "of the masks of --task mlm");
    device_.declare(arguments);
  }

  int run() override {
    device_.apply();
    group_ = join_sharing_ranks(device_);
    precision_ =
        comm::from_first(group_, [&] { return resolve_inference_precision(precision_, device_.place()); });
    pretrained_.emplace(model_);
    note_ = pretrained_->note();
    require_place(predictions_, "--predictions");
    form_ = answer_format(predictions_, "--predictions");
    require_folder_name(output_, "--output");
    refuse_to_replace_the_rows();
    choose_task();
    length_ = max_length_.value_or(default_length());
    pretrained_->check_max_length(length_);
    require_equal_on_all_ranks();
    const std::unique_ptr<text::Tokenizer> tokenizer = pretrained_->tokenizer();
    if (task_options_.name == "mlm") return masked_lm(*tokenizer);
    return task_options_.name == eval::kTagTask ? tag(*tokenizer) : classify(*tokenizer);
  }

 private:
  void require_equal_on_all_ranks() const {
    require_same_work(group_, "evaluate", [&] {
      const fs::path data = fs::is_directory(data_) ? data_ / data::kMetaFile : data_;
      return fmt::format("{:016x} {} {} {} {} {} {} {}", hash_file(data), pretrained_->weights_hash(),
                         task_options_.name, precision_, length_, batch_size_.value_or(0), batch_tokens_,
                         seed_);
    });
  }

  void refuse_to_replace_the_rows() const {
    std::error_code ignored;
    if (!predictions_.empty() && fs::equivalent(predictions_, data_, ignored))
      throw InputError("usage", "--predictions {} is the file that is evaluated; name another one",
                       predictions_.string());
    if (!output_.empty() && fs::exists(output_) && !fs::is_directory(output_))
      throw InputError("usage", "--output {} is a file; expected a folder", output_.string());
    for (const char* const name : {"predictions.jsonl", "evaluation.json"})
      if (!output_.empty() && fs::equivalent(output_ / name, data_, ignored))
        throw InputError("usage", "--output {} would replace the file that is evaluated; name another folder",
                         output_.string());
  }

  int64_t default_length() const {
    const int64_t longest = pretrained_->config().encoder.longest_sequence();
    if (note_.max_length > 0) return note_.max_length;
    return task_options_.name == "mlm" ? std::min<int64_t>(128, longest) : longest;
  }

  /// What is not given is as in fine-tuning.
  void choose_task() {
    if (task_options_.name.empty()) task_options_.name = note_.task;
    if (task_options_.name.empty())
      throw InputError("usage", "{} does not say what it was fine-tuned for; give --task", model_.string());
    if (task_options_.name == "mlm" && (details_ || !predictions_.empty() || !output_.empty()))
      throw InputError("usage", "{} is of classifiers, not of --task mlm",
                       details_               ? "--details"
                       : predictions_.empty() ? "--output"
                                              : "--predictions");
    if (task_options_.name != note_.task) return;
    task_options_.take_note(note_.source, arguments);
    if (note_.task != "custom") return;
    const format::ModelConfig& config = pretrained_->config();
    if (!arguments.given("multi-label")) task_options_.custom.multi_label = objective::is_multi_label(config);
    if (!arguments.given("regression")) task_options_.custom.regression = model::is_regression(config);
  }

  /// A model of pairs reads pairs, and one of single texts those.
  void check_number_of_texts(const eval::Task& task) const {
    if (note_.task.empty() || task.columns() == note_.text_columns) return;
    throw InputError("task",
                     "{} was fine-tuned on {}, found {}; give as many with --text-column, or leave it out",
                     model_.string(), note_.text_columns == 2 ? "pairs of texts" : "single texts",
                     task.columns() == 2 ? "pairs" : "single ones");
  }

  /// What the task needs, and what the model was made for.
  void require_kind_of(const eval::Task& task) const {
    const format::ModelConfig& config = pretrained_->config();
    if (model::is_token_classifier(config))
      throw InputError("task", "{} gives each word of a text a tag; give --task {}", model_.string(),
                       eval::kTagTask);
    if (model::is_regression(config) != task.regression)
      throw InputError("task", "{} is a {}; {} needs a {}", model_.string(),
                       task.regression ? "classifier" : "regression model",
                       task.name == "custom"
                           ? (task.regression ? "--regression" : "--task custom without --regression")
                           : task.name,
                       task.regression ? "regression model" : "classifier");
    if (task.multi_label != objective::is_multi_label(config))
      throw InputError("task", "{} is a model of {}; {}", model_.string(),
                       task.multi_label ? "one label a text" : "any number of labels a text",
                       task.multi_label ? "leave out --multi-label" : "give --task custom and --multi-label");
  }

  int classify(const text::Tokenizer& tokenizer) {
    const format::ModelConfig& config = pretrained_->config();
    const eval::Task task = task_options_.task(arguments);
    require_kind_of(task);
    check_number_of_texts(task);
    if (fs::is_directory(data_))
      throw InputError(
          "evaluate", "--data {}: task {} takes a file of rows, found a folder{}", data_.string(), task.name,
          fs::exists(data_ / data::kMetaFile) ? "; a token store is measured with --task mlm" : "");
    pretrained_->check_columns(task.columns(), tokenizer.sequence());
    if (task.regression && details_)
      throw InputError(
          "usage",
          "--details is of classifiers, and {} gives numbers; --predictions FILE writes them, row by row",
          model_.string());
    const std::vector<std::string> labels =
        task.regression ? std::vector<std::string>() : labels_of_model(task, config, model_);
    const auto objective =
        objective::make_classifier(tokenizer, config,
                                   {.sequence = {static_cast<int32_t>(length_), note_.pair_truncation()},
                                    .metrics = task.metrics,
                                    .positive = task.positive(labels),
                                    .thresholds = objective::thresholds_in(note_.source, config.num_labels)});
    if (task.multi_label && !objective::thresholds_in(note_.source, config.num_labels).empty())
      log::info("labels are given from the thresholds of {} on", (model_ / "config.json").string());
    const Model model = load(*objective);
    const TemporaryFolder folder;
    const auto store = open_rows(folder.path(), [&](const fs::path& place, bool verify) {
      return eval::open_task_store(task, data_, "eval", tokenizer, labels, place, verify);
    });
    note_cut(*store, tokenizer);
    report_rows(*store, tokenizer.special().unknown);
    warn_of_missing_texts(*store, tokenizer, data_);
    const auto kind = task.regression    ? eval::AnswerKind::number
                      : task.multi_label ? eval::AnswerKind::class_set
                                         : eval::AnswerKind::one_class;
    eval::AnswerSheet sheet(objective->metrics(), kind, labels,
                            objective::thresholds_in(note_.source, config.num_labels));
    const auto begin = std::chrono::steady_clock::now();
    OrderedJson found = measure(model, *objective, store, &sheet);
    const double seconds = seconds_since(begin);
    if (group_.rank() > 0) return 0;
    if (task.layout.bad_rows->count() > 0) sheet.number_rows(eval::numbers_of_rows(task, data_));
    record(found, sheet, task, model, seconds);
    if (details_) sheet.add_details(found);
    if (!predictions_.empty()) write_predictions(sheet.lines());
    fmt::print("{}\n", json_text(found));
    return 0;
  }

  /// A tag for each word.
  int tag(const text::Tokenizer& tokenizer) {
    const format::ModelConfig& config = pretrained_->config();
    const eval::Task task = task_options_.task(arguments);
    refuse_table(form_, predictions_, "--predictions");
    if (fs::is_directory(data_))
      throw InputError("evaluate", "--data {}: task {} takes a file of words and tags, found a folder",
                       data_.string(), task.name);
    if (!model::is_token_classifier(config))
      throw InputError("task",
                       "{} gives whole texts their classes; expected a model that gives each word one ({})",
                       model_.string(), model::token_classifier().purpose);
    const auto objective = objective::make_classifier(
        tokenizer, config, {.sequence = {static_cast<int32_t>(length_), note_.pair_truncation()}});
    const Model model = load(*objective);
    const std::vector<std::string> tags = model::class_names(config);
    const TemporaryFolder folder;
    const auto store = open_rows(folder.path(), [&](const fs::path& place, bool verify) {
      return eval::open_task_store(task, data_, "eval", tokenizer, tags, place, verify);
    });
    note_cut(*store, tokenizer);
    if (group_.rank() == 0) report_words_scored(tags);
    report_rows(*store, tokenizer.special().unknown);
    eval::TagSheet sheet(tags);
    const auto begin = std::chrono::steady_clock::now();
    OrderedJson found = measure(model, *objective, store, &sheet);
    const double seconds = seconds_since(begin);
    if (group_.rank() > 0) return 0;
    record(found, sheet, task, model, seconds);
    if (details_) found["classes"] = sheet.classes();
    if (!predictions_.empty()) write_predictions(sheet.lines(task, data_));
    fmt::print("{}\n", json_text(found));
    return 0;
  }

  void note_cut(const data::TokenStore& store, const text::Tokenizer& tokenizer) {
    cut_ = cut_rows(store, length_, tokenizer);
    if (group_.rank() == 0) report_cut(cut_, data_.string(), length_, "the scores cover the rest");
  }

  /// Writes --output, and adds to what was found how many rows were left out, and how much of the others was cut.
  template <class Sheet>
  void record(OrderedJson& found, const Sheet& sheet, const eval::Task& task, const Model& model,
              double seconds) const {
    const uint64_t left_out = task.layout.bad_rows->count();
    if (!output_.empty()) {
      OrderedJson all = about(found, model, seconds);
      if (left_out > 0) all["left_out"] = left_out;
      eval::write_evaluation(output_, with_cut(all, cut_), sheet, task, data_);
    }
    if (left_out > 0) found["left_out"] = left_out;
    found = with_cut(found, cut_);
  }

  void report_rows(const data::TokenStore& store, int32_t unknown) const {
    if (group_.rank() > 0) return;
    report_textless(store, data_);
    report_repeats(store, data_, model_, unknown);
  }

  void write_predictions(const std::string& lines) const {
    AnswerText text(form_, lines.substr(0, lines.find('\n')), /*errors=*/false,
                    task_options_.custom.label_separator);
    write_file_atomically(predictions_, text.whole(lines));
  }

  using Store = std::shared_ptr<const data::TokenStore>;
  /// Tokenised once a host: its first rank leaves the store in its `folder`, and the others `open` it there. A rank that
  /// sees the folder of none of them, as in a container, tokenises the rows itself.
  Store open_rows(const fs::path& folder, const std::function<Store(const fs::path&, bool verify)>& open) {
    const bool first = group_.rank() == 0 || launch::read_environment().local_rank == 0;
    Store store;
    comm::together(group_, [&] {
      if (first) store = open(folder, true);
    });
    if (group_.size() == 1) return store;
    const std::vector<std::string> made = group_.gather_texts(first ? folder.string() : "");
    comm::together(group_, [&] {
      if (first) return;
      const auto seen = std::find_if(made.begin(), made.end(), [](const std::string& place) {
        return !place.empty() && fs::exists(place);
      });
      store = seen == made.end() ? open(folder, true) : open(*seen, false);
    });
    return store;
  }

  /// What evaluation.json tells besides the answers.
  OrderedJson about(const OrderedJson& found, const Model& model, double seconds) const {
    const format::ModelConfig& config = pretrained_->config();
    OrderedJson metrics = found;
    metrics.erase("samples");
    const double samples = found["samples"].get<double>();
    return {{"model", model_.string()},
            {"data", data_.string()},
            {"task", task_options_.name},
            {"samples", found["samples"]},
            {"metrics", metrics},
            {"parameters", model.parameter_count()},
            {"bytes", eval::weight_bytes(model_)},
            {"layers", config.encoder.layers},
            {"hidden_size", config.encoder.width},
            {"precision", precision_},
            {"seconds", seconds},
            {"rows_per_second", samples / std::max(seconds, 1e-9)}};
  }

  int masked_lm(const text::Tokenizer& tokenizer) {
    task_options_.refuse_columns(arguments);
    if (arguments.given("skip-bad-rows"))
      throw InputError("usage", "--skip-bad-rows is of files of rows; --task mlm measures on a token store");
    task_options_.refuse_style(arguments, "--task mlm measures on a token store");
    const auto store = data::TokenStore::open(data_);
    store->require_tokenizer(tokenizer);
    const objective::MaskedLm objective(tokenizer, {.sequence = {static_cast<int32_t>(length_)}});
    const std::unique_ptr<Metrics> metrics = objective.metrics();
    const OrderedJson found = measure(load(objective), objective, store, metrics.get());
    if (group_.rank() == 0) fmt::print("{}\n", json_text(found));
    return 0;
  }

  Model load(const objective::Objective& objective) const {
    Model model = objective.build(
        pretrained_->options(precision_ == "fp64" ? at::kDouble : at::kFloat, device_.place()));
    pretrained_->load_all(model, objective.head());
    model::prepare_inference(model, precision_);
    return model;
  }

  OrderedJson measure(const Model& model, const objective::Objective& objective,
                      const std::shared_ptr<const data::TokenStore>& store, Metrics* metrics) {
    const std::shared_ptr<const data::Dataset> samples = objective.samples(store);
    const train::DatasetSource source(objective, *samples);
    std::optional<Progress> progress;
    ProgressOptions shown;
    shown.unit = "rows";
    if (group_.rank() == 0) progress.emplace("evaluate", static_cast<uint64_t>(samples->size()), shown);
    const auto result =
        train::evaluate(model, source, metrics, batch_size_.value_or(batch_tokens_ > 0 ? kMostRows : kRows),
                        batch_tokens_, static_cast<uint64_t>(seed_), group_, [&](int64_t rows) {
                          if (progress) progress->update(static_cast<uint64_t>(rows));
                        });
    progress.reset();
    // A correlation may not be defined; a loss is.
    for (const char* name : {"loss", "perplexity"})
      if (const auto found = result.find(name); found != result.end() && !std::isfinite(found->second))
        throw RunError("evaluate", "{} is {}: the weights of {} are damaged, or became so in training", name,
                       found->second, model_.string());
    OrderedJson json(result);
    json["samples"] = samples->size();
    return json;
  }

  fs::path model_, data_, predictions_, output_;
  AnswerFormat form_ = AnswerFormat::json_lines;
  bool details_ = false;
  TaskOptions task_options_;
  std::optional<int64_t> max_length_, batch_size_;
  int64_t batch_tokens_ = 8192, seed_ = 42, length_ = 0;
  std::string precision_ = kAutoPrecision;
  DeviceOptions device_;
  comm::Group group_;
  std::optional<model::Pretrained> pretrained_;
  model::TaskNote note_;
  data::CutRows cut_;
};

}  // namespace

std::unique_ptr<Command> make_evaluate() {
  return std::make_unique<Evaluate>();
}

}  // namespace funicular::cli
