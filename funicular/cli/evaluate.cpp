// funicular evaluate: exact metrics of a model on labelled data.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/cli/command.h"
#include "funicular/cli/options.h"
#include "funicular/cli/task_options.h"
#include "funicular/data/store_files.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/objective/multi_label.h"
#include "funicular/objective/registry.h"

namespace funicular::cli {

namespace {

/// Rows of a forward pass: at most, where its tokens are limited as well; where they are not.
constexpr int64_t kMostRows = 512, kRows = 32;

/// The task's labels in the order of the model's classes.
std::vector<std::string> labels_of_model(const eval::Task& task, const format::BertConfig& config,
                                         const fs::path& model) {
  const std::vector<std::string> own = model::class_names(config);
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
  std::vector<std::string> names = eval::task_names();
  names.push_back("mlm");
  return names;
}

class Evaluate final : public Command {
 public:
  Evaluate()
      : Command("evaluate", "Measure a model on labelled data",
                "Prints one JSON object with the metrics of a fine-tuned model on a task's file, or with "
                "--task mlm the loss "
                "and perplexity of a masked language model on a token store.") {
    arguments.section("Input");
    declare_model(arguments, model_, "model folder");
    task_options_.declare_name(arguments, tasks());
    arguments.add("data", "FILE|STORE", data_, "the rows; for mlm a token store")
        .alias("validation-file")
        .required();
    declare_max_length(arguments, max_length_, "longer rows are truncated")
        .default_text("as in fine-tuning, else the model's longest; mlm: 128");
    task_options_.declare(arguments);
    arguments.section("Machine and randomness");
    declare_eval_batch_size(arguments, batch_size_)
        .default_text("as --micro-batch-tokens allows, " + std::to_string(kMostRows) +
                      " at most; without that limit " + std::to_string(kRows));
    declare_micro_batch_tokens(arguments, batch_tokens_, "0: no limit");
    arguments.add("precision", "NAME", precision_, "arithmetic").choices([] {
      std::vector<std::string> names = model::inference_precisions();
      names.push_back("fp64");
      return names;
    }());
    declare_seed(arguments, seed_, "of the masks of --task mlm");
    device_.declare(arguments);
  }

  int run() override {
    device_.apply();
    pretrained_.emplace(model_);
    note_ = pretrained_->note();
    length_ = max_length_.value_or(default_length());
    pretrained_->check_max_length(length_);
    const std::unique_ptr<text::Tokenizer> tokenizer = pretrained_->tokenizer();
    return task_options_.name == "mlm" ? masked_lm(*tokenizer) : classify(*tokenizer);
  }

 private:
  int64_t default_length() const {
    const int64_t longest = pretrained_->config().longest_sequence();
    if (note_.max_length > 0) return note_.max_length;
    return task_options_.name == "mlm" ? std::min<int64_t>(128, longest) : longest;
  }

  int classify(const text::Tokenizer& tokenizer) {
    const format::BertConfig& config = pretrained_->config();
    const eval::Task task = task_options_.task(arguments);
    if (fs::is_directory(data_))
      throw InputError(
          "evaluate", "--data {}: task {} takes a file of rows, found a folder{}", data_.string(), task.name,
          fs::exists(data_ / data::kMetaFile) ? "; a token store is measured with --task mlm" : "");
    if (model::is_regression(config))
      throw InputError("task", "{} is a regression model; {} needs a classifier", model_.string(), task.name);
    pretrained_->check_columns(task.columns(), tokenizer.sequence());
    if (task.multi_label != objective::is_multi_label(config))
      throw InputError("task", "{} is a model of {}; {}", model_.string(),
                       task.multi_label ? "one label a text" : "any number of labels a text",
                       task.multi_label ? "leave out --multi-label" : "give --task custom and --multi-label");
    const auto objective =
        objective::make_classifier(tokenizer, config,
                                   {.sequence = {static_cast<int32_t>(length_), note_.pair_truncation()},
                                    .metrics = task.metrics,
                                    .thresholds = objective::thresholds_in(note_.source, config.num_labels)});
    const Model model = load(*objective);
    const eval::TemporaryFolder folder;
    const auto store = eval::open_task_store(task, data_, "eval", tokenizer,
                                             labels_of_model(task, config, model_), folder.path());
    report_truncated(*store, data_.string(), length_, tokenizer.sequence());
    return measure(model, *objective, store);
  }

  int masked_lm(const text::Tokenizer& tokenizer) {
    task_options_.refuse_columns(arguments);
    const auto store = data::TokenStore::open(data_);
    store->require_tokenizer(tokenizer);
    const objective::MaskedLm objective(tokenizer, {.sequence = {static_cast<int32_t>(length_)}});
    return measure(load(objective), objective, store);
  }

  Model load(const objective::Objective& objective) const {
    Model model = objective.build(
        pretrained_->options(precision_ == "fp64" ? at::kDouble : at::kFloat, device_.place()));
    pretrained_->load_all(model, objective.head());
    model::prepare_inference(model, precision_);
    return model;
  }

  int measure(const Model& model, const objective::Objective& objective,
              const std::shared_ptr<const data::TokenStore>& store) {
    const std::shared_ptr<const data::Dataset> samples = objective.samples(store);
    const std::unique_ptr<Metrics> metrics = objective.metrics();
    const train::DatasetSource source(objective, *samples);
    const auto result = train::evaluate(model, source, metrics.get(),
                                        batch_size_.value_or(batch_tokens_ > 0 ? kMostRows : kRows),
                                        batch_tokens_, static_cast<uint64_t>(seed_));
    for (const auto& [name, value] : result)
      if (!std::isfinite(value))
        throw RunError("evaluate", "{} is {}: the weights of {} are damaged, or became so in training", name,
                       value, model_.string());
    OrderedJson json(result);
    json["samples"] = samples->size();
    fmt::print("{}\n", json.dump());
    return 0;
  }

  fs::path model_, data_;
  TaskOptions task_options_;
  std::optional<int64_t> max_length_, batch_size_;
  int64_t batch_tokens_ = 8192, seed_ = 42, length_ = 0;
  std::string precision_ = "fp32";
  DeviceOptions device_;
  std::optional<model::Pretrained> pretrained_;
  model::TaskNote note_;
};

}  // namespace

std::unique_ptr<Command> make_evaluate() {
  return std::make_unique<Evaluate>();
}

}  // namespace funicular::cli
