#include "funicular/task/probe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/hash.h"
#include "funicular/base/json_text.h"
#include "funicular/model/layer_classifiers.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/layer_classification.h"
#include "funicular/objective/layer_metrics.h"
#include "funicular/task/cut_texts.h"
#include "funicular/task/label_report.h"
#include "funicular/task/registry.h"
#include "funicular/task/sheet.h"
#include "funicular/task/store.h"
#include "funicular/task/text_report.h"

namespace funicular::task {

namespace {

constexpr const char* kProbes = "probes.";

class Probing {
 public:
  explicit Probing(const ProbeOptions& options);
  ProbeResult run();

 private:
  void check_task() const;
  std::set<int64_t> layers() const;
  std::unique_ptr<objective::Objective> make_objective() const;
  Model make_model(const objective::Objective& objective) const;
  train::TrainerOptions trainer_options(const objective::Objective& objective) const;
  OrderedJson table(const std::map<std::string, double>& scores) const;

  const ProbeOptions& o_;
  const Task& task_;
  const model::Pretrained pretrained_;
  format::ModelConfig config_;  ///< with the classes of the rows
  int64_t max_length_ = 0;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::shared_ptr<const data::TokenStore> train_store_, eval_store_;
};

Probing::Probing(const ProbeOptions& options)
    : o_(options), task_(*options.task), pretrained_(options.model), config_(pretrained_.config()) {
  check_task();
  max_length_ = o_.max_length.value_or(task_.default_length(o_.model));
  pretrained_.fit_max_length(max_length_, o_.max_length.has_value());
  tokenizer_ = pretrained_.tokenizer();
  pretrained_.check_columns(task_.texts(), tokenizer_->sequence());
  const fs::path folder = o_.trainer.output / "data";
  StoreOptions stored{.labels = task_.label_names(), .bad_rows = o_.bad_rows};
  train_store_ = open_store(task_, o_.train_file, "train", *tokenizer_, folder, stored);
  task_.check_training({*train_store_, o_.train_file});
  stored.labels = train_store_->meta().label_names;
  eval_store_ = open_store(task_, o_.eval_file, "eval", *tokenizer_, folder, stored);
  config_.id2label = stored.labels;
  config_.num_labels = static_cast<int>(stored.labels.size());
  config_.problem_type = "single_label_classification";
  format::Dropouts& dropouts = config_.encoder.dropouts;
  dropouts.hidden = dropouts.attention = dropouts.feed_forward = 0;
  if (dropouts.attention_output) dropouts.attention_output = 0;
  if (dropouts.feed_forward_output) dropouts.feed_forward_output = 0;
  report_texts(*train_store_, o_.train_file, eval_store_.get(), o_.eval_file,
               {task_.longest_row(max_length_), config_.encoder.longest_sequence()}, *tokenizer_);
}

void Probing::check_task() const {
  const std::string& kind = task_.type().name;
  if (kind != "classes" && kind != "tags")
    throw InputError("usage", "probe works only with one class per text or per word; {} gives {}",
                     task_.type().asked_for(), task_.type().gives);
}

std::set<int64_t> Probing::layers() const {
  std::set<int64_t> layers = o_.layers;
  const int64_t last = config_.encoder.layers;
  for (int64_t layer = 0; o_.layers.empty() && layer <= last; ++layer) layers.insert(layer);
  if (*layers.begin() < 0 || *layers.rbegin() > last)
    throw InputError("usage", "--layers {}: expected 0, for the embeddings, to {}",
                     *layers.begin() < 0 ? *layers.begin() : *layers.rbegin(), last);
  return layers;
}

std::unique_ptr<objective::Objective> Probing::make_objective() const {
  const bool tags = task_.type().name == "tags";
  auto rows = task_.objective(*tokenizer_, config_,
                              {.sequence = {static_cast<int32_t>(max_length_)}, .labels = config_.id2label});
  return std::make_unique<objective::LayerClassification>(
      std::move(rows), objective::LayerClassificationOptions{
                           .classifiers = {.prefix = kProbes,
                                           .layers = layers(),
                                           .reader = tags      ? model::named_rows_reader("tag_rows")
                                                     : o_.mean ? model::mean_reader()
                                                               : model::first_token_reader()},
                           .rows_count = tags ? "tags" : "classification",
                           .file = kProbesFile,
                           .last_layer = config_.encoder.layers});
}

Model Probing::make_model(const objective::Objective& objective) const {
  model::ModelOptions encoder = pretrained_.options(o_.dtype, o_.device);
  encoder.config = config_;
  encoder.seed = o_.trainer.seed;
  encoder.repeatable = o_.repeatable;
  Model model = objective.build(encoder);
  pretrained_.load(model, /*starts_anew=*/false, "", objective.head(), kProbes);
  return model;
}

train::TrainerOptions Probing::trainer_options(const objective::Objective& objective) const {
  train::TrainerOptions options = o_.trainer;
  options.best_metric = objective::kMeanLayerAccuracy;
  options.greater_is_better = true;
  options.trainable = {kProbes};
  options.identity.merge(objective.identity());
  options.identity.merge(
      std::map<std::string, std::string>{{"task", task_.name()},
                                         {"model", model::describe_model(config_)},
                                         {"initial_weights", pretrained_.weights_hash()},
                                         {"pooling", o_.mean ? "mean" : "first"},
                                         {"tokenizer", hash_text(tokenizer_->fingerprint())}});
  options.run_info = {{"command", "probe"},
                      {"task", task_.name()},
                      {"source_model", o_.model.string()},
                      {"train_file", o_.train_file.string()},
                      {"eval_file", o_.eval_file.string()},
                      {"labels", config_.id2label}};
  return options;
}

/// The mean accuracy of the lower, middle and upper third of the layers, the embeddings left out.
OrderedJson thirds_of(const std::vector<std::pair<int64_t, double>>& layers, int64_t last) {
  static constexpr const char* kNames[] = {"lower", "middle", "upper"};
  OrderedJson found = OrderedJson::object();
  for (int64_t third = 0; third < 3; ++third) {
    double sum = 0, count = 0;
    for (const auto& [layer, accuracy] : layers)
      if (layer > 0 && (layer - 1) * 3 / last == third) {
        sum += accuracy;
        ++count;
      }
    if (count > 0) found[kNames[third]] = sum / count;
  }
  return found;
}

OrderedJson Probing::table(const std::map<std::string, double>& scores) const {
  const std::vector<int64_t> counts = rows_of_classes(*eval_store_);
  const auto most = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  OrderedJson rows = OrderedJson::array();
  std::vector<std::pair<int64_t, double>> accuracies;
  for (const int64_t layer : layers()) {
    const double accuracy = scores.at(objective::layer_metric(layer, "accuracy"));
    rows.push_back({{"layer", layer},
                    {"accuracy", accuracy},
                    {"macro_f1", scores.at(objective::layer_metric(layer, "macro_f1"))}});
    accuracies.emplace_back(layer, accuracy);
  }
  const auto best = *std::max_element(accuracies.begin(), accuracies.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto enough = *std::find_if(accuracies.begin(), accuracies.end(),
                                    [&](const auto& one) { return one.second >= best.second - o_.margin; });
  return {{"layers", rows},
          {"most_frequent", most / all},
          {"best_layer", best.first},
          {"best_accuracy", best.second},
          {"student_layers", enough.first},
          {"margin", o_.margin},
          {"standard_error", std::sqrt(best.second * (1 - best.second) / all)},
          {"thirds", thirds_of(accuracies, config_.encoder.layers)}};
}

ProbeResult Probing::run() {
  const auto objective = make_objective();
  Model model = make_model(*objective);
  ProbeResult result{.run = {.options = trainer_options(*objective)}};
  const auto seen = objective->samples(train_store_), held_out = objective->samples(eval_store_);
  const train::DatasetSource rows(*objective, *seen), unseen(*objective, *held_out);
  const auto metrics = objective->metrics();
  result.run.fit =
      fit(model, o_, result.run.options, rows, {&unseen, metrics.get()},
          [&](const fs::path& folder) { objective->save_more(model, config_, *tokenizer_, folder); });
  result.run.cut = cut_rows(
      *eval_store_, {task_.longest_row(max_length_), config_.encoder.longest_sequence()}, *tokenizer_);
  if (result.run.fit.interrupted) return result;
  result.probe = table(result.run.fit.best_evaluation);
  const OrderedJson record{{"model", o_.model.string()},
                           {"data", o_.eval_file.string()},
                           {"task", task_.name()},
                           {"samples", held_out->size()},
                           {"metrics", {{"accuracy", result.probe["best_accuracy"]}}},
                           {"layers", config_.encoder.layers},
                           {"bytes", weight_bytes(o_.model)},
                           {"probe", result.probe}};
  write_file_atomically(o_.trainer.output / "evaluation.json", json_text(record, 1) + "\n");
  return result;
}

}  // namespace

ProbeResult probe(const ProbeOptions& options) {
  return Probing(options).run();
}

}  // namespace funicular::task
