#include "funicular/task/early_exit.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/objective/exit_curve.h"
#include "funicular/objective/layer_classification.h"
#include "funicular/objective/layer_metrics.h"
#include "funicular/task/registry.h"

namespace funicular::task {

const std::vector<std::string>& exit_training_names() {
  static const std::vector<std::string> names{"none", "two-stage", "self-distillation", "joint"};
  return names;
}

const std::vector<std::string>& exit_pooling_names() {
  static const std::vector<std::string> names{"mean", "first"};
  return names;
}

void require_one_class(const Task& task, const char* option) {
  if (task.type().name != "classes")
    throw InputError("usage", "{} works only with one class per text; {} gives {}", option,
                     task.type().asked_for(), task.type().gives);
  if (task.files().stride)
    throw InputError("usage", "{} works only with texts that are cut, and --stride reads them in windows",
                     option);
}

namespace {

std::set<int64_t> layers_with_exits(const format::ModelConfig& config) {
  std::set<int64_t> layers;
  for (int64_t layer = 1; layer < config.encoder.layers; ++layer) layers.insert(layer);
  if (layers.empty())
    throw InputError("usage",
                     "a model of one layer has no exits before its classifier; expected 2 layers at least");
  return layers;
}

}  // namespace

Json exits_note(const format::ModelConfig& config, const EarlyExitOptions& options) {
  return {{"layers", layers_with_exits(config)},
          {"training", exit_training_names().at(static_cast<size_t>(options.training))},
          {"pooling", exit_pooling_names().at(static_cast<size_t>(options.pooling))}};
}

std::unique_ptr<objective::Objective> with_exits(std::unique_ptr<objective::Objective> classes,
                                                 const format::ModelConfig& config,
                                                 const EarlyExitOptions& exits,
                                                 const objective::ClassLoss& loss) {
  using Options = objective::LayerClassificationOptions;
  Options options{.classifiers = {.prefix = model::kExits,
                                  .layers = layers_with_exits(config),
                                  .dense = true,
                                  .reader = exits.pooling == ExitPooling::mean ? model::mean_reader()
                                                                               : model::first_token_reader()},
                  .own_classifier = true,
                  .own_learns = exits.training == ExitTraining::joint,
                  .rows_count = "classification",
                  .loss = loss,
                  .file = kExitsFile,
                  .last_layer = config.encoder.layers,
                  .note = exits_note(config, exits)};
  if (exits.training == ExitTraining::self_distillation) options.target = Options::Target::own_answers;
  return std::make_unique<objective::LayerClassification>(std::move(classes), std::move(options));
}

// ---- a model with exits

namespace {

constexpr const char* kOrigin = "config.json (key \"funicular\", \"early_exit\")";

Json note_of(const model::Pretrained& pretrained) {
  const Json note = pretrained.note().source;
  const auto found = note.find(objective::kExitsNote);
  return found == note.end() || !found->is_object() ? Json() : *found;
}

std::vector<objective::ExitPoint> curve_of(const Json& note, const std::string& rule,
                                           const model::Pretrained& pretrained) {
  const auto found = note.find(rule);
  if (found == note.end())
    throw InputError("usage",
                     "{}: its exits were trained without evaluation rows, so no speed and no accuracy are "
                     "known; give --exit-threshold, or train them with --eval FILE",
                     pretrained.path().string());
  return objective::read_exit_curve(*found, kOrigin);
}

objective::ExitPoint chosen_point(const std::vector<objective::ExitPoint>& curve, const ExitChoice& choice,
                                  double layers) {
  if (choice.speed) {
    if (const auto point = objective::most_accurate(curve, layers / *choice.speed)) return *point;
    throw InputError("usage", "--speed {}: the fastest exits reach {:.3g}, at an accuracy of {:.4g}",
                     *choice.speed, layers / curve.front().mean_layers, curve.front().accuracy);
  }
  if (const auto point = objective::fewest_layers(curve, *choice.accuracy)) return *point;
  const auto best = objective::most_accurate(curve, layers);
  throw InputError("usage", "--exit-accuracy {}: the greatest accuracy on the evaluation rows was {:.4g}",
                   *choice.accuracy, best ? best->accuracy : 0);
}

}  // namespace

bool has_exits(const model::Pretrained& pretrained) {
  return !note_of(pretrained).is_null();
}

EarlyExitOptions exit_options(const model::Pretrained& pretrained) {
  const Json note = note_of(pretrained);
  const auto chosen = [&](const char* key, const std::vector<std::string>& names, const char* absent) {
    const std::string name = json_get_or<std::string>(note, key, absent, kOrigin);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw InputError("json", "{}: {}: expected {}, found \"{}\"", kOrigin, key, fmt::join(names, " or "),
                       name);
    return found - names.begin();
  };
  return {.training = static_cast<ExitTraining>(chosen("training", exit_training_names(), "two-stage")),
          .pooling = static_cast<ExitPooling>(chosen("pooling", exit_pooling_names(), "first"))};
}

model::ExitRule exit_rule(const model::Pretrained& pretrained, const ExitChoice& choice) {
  const Json note = note_of(pretrained);
  if (note.is_null())
    throw InputError("usage", "{} has no exits; finetune --early-exit trains them",
                     pretrained.path().string());
  model::ExitRule rule{.kind = choice.rule};
  rule.temperatures = json_get_or<std::vector<double>>(note, "temperatures", {}, kOrigin);
  if (choice.threshold) {
    rule.threshold = *choice.threshold;
    return rule;
  }
  const std::string& name = model::exit_rule_names().at(static_cast<size_t>(choice.rule));
  const auto layers = static_cast<double>(pretrained.config().encoder.layers);
  const std::vector<objective::ExitPoint> curve = curve_of(note, name, pretrained);
  if (curve.empty()) throw InputError("json", "{}: expected a list of thresholds, found none", kOrigin);
  const objective::ExitPoint point = chosen_point(curve, choice, layers);
  rule.threshold = point.threshold;
  log::info(
      "--exit-rule {} --exit-threshold {:.6g}: {:.2f} of {} layers and an accuracy of {:.4f} on the rows "
      "that chose it",
      name, point.threshold, point.mean_layers, layers, point.accuracy);
  return rule;
}

Model load_with_exits(const model::Pretrained& pretrained, const objective::Objective& objective,
                      const std::string& precision, at::Device device) {
  const fs::path file = pretrained.path() / kExitsFile;
  if (!fs::exists(file))
    throw InputError("weights", "{}: no such file; config.json says that the model has exits", file.string());
  Model model = objective.build(pretrained.options(precision == "fp64" ? at::kDouble : at::kFloat, device));
  pretrained.load_all(model, model::Head::classification, model::kExits);
  model::load_layer_classifiers(model, model::kExits, file);
  model::prepare_inference(model, precision);
  return model;
}

namespace {

class MeanLayers final : public Metrics {
 public:
  explicit MeanLayers(std::unique_ptr<Metrics> inner) : inner_(std::move(inner)) {}
  void start() override {
    inner_->start();
    layers_ = rows_ = 0;
  }
  void add(const TensorMap& outputs) override {
    inner_->add(outputs);
    const at::Tensor& layers = outputs.at("exit_layers");
    layers_ += layers.sum().item<double>();
    rows_ += static_cast<double>(layers.numel());
  }
  void losses(const std::map<std::string, double>& terms) override { inner_->losses(terms); }
  std::map<std::string, double> finish(double loss) override {
    auto found = inner_->finish(loss);
    found["mean_layers"] = layers_ / rows_;
    return found;
  }

 private:
  std::unique_ptr<Metrics> inner_;
  double layers_ = 0, rows_ = 0;
};

}  // namespace

std::unique_ptr<Metrics> with_mean_layers(std::unique_ptr<Metrics> metrics) {
  return std::make_unique<MeanLayers>(std::move(metrics));
}

}  // namespace funicular::task
