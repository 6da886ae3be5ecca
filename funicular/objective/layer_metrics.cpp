#include "funicular/objective/layer_metrics.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

std::string layer_metric(int64_t layer, const std::string& metric) {
  return fmt::format("layer_{}_{}", layer, metric);
}

LayerMetrics::LayerMetrics(std::unique_ptr<Metrics> inner, std::vector<int64_t> layers, Json note)
    : inner_(std::move(inner)), layers_(std::move(layers)), note_(std::move(note)) {}

void LayerMetrics::start() {
  if (inner_) inner_->start();
  logits_.clear();
  labels_.clear();
}

void LayerMetrics::add(const TensorMap& outputs) {
  if (inner_) inner_->add(outputs);
  const auto logits = outputs.find("layer_logits"), labels = outputs.find("labels");
  if (logits == outputs.end() || labels == outputs.end())
    throw InputError("metrics", "expected the outputs layer_logits and labels of a model with classifiers");
  logits_.push_back(logits->second.to(at::kCPU, at::kFloat));
  labels_.push_back(labels->second.to(at::kCPU));
}

ExitAnswers LayerMetrics::answers() const {
  return {at::cat(logits_), at::cat(labels_), layers_};
}

std::map<std::string, double> LayerMetrics::finish(double loss) {
  std::map<std::string, double> found;
  if (inner_) found = inner_->finish(loss);
  const ExitAnswers all = answers();
  const at::Tensor predicted = all.logits.argmax(-1).transpose(0, 1).contiguous();
  const auto rows = static_cast<size_t>(all.labels.size(0));
  const std::span<const int64_t> truth(all.labels.const_data_ptr<int64_t>(), rows);
  double sum = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::span<const int64_t> own(predicted.const_data_ptr<int64_t>() + i * rows, rows);
    const double share = accuracy(own, truth);
    found[layer_metric(layers_[i], "accuracy")] = share;
    if (!inner_) found[layer_metric(layers_[i], "macro_f1")] = macro_f1(own, truth);
    sum += share;
  }
  found[kMeanLayerAccuracy] = sum / static_cast<double>(layers_.size());
  return found;
}

Json LayerMetrics::kept() const {
  Json kept = inner_ ? inner_->kept() : Json::object();
  if (note_.is_null() || logits_.empty()) return kept;
  const ExitAnswers all = answers();
  Json& note = kept[kExitsNote] = note_;
  const std::vector<double> temperatures = fit_temperatures(all);
  note["temperatures"] = temperatures;
  using Kind = model::ExitRule::Kind;
  for (const Kind kind : {Kind::entropy, Kind::confidence})
    note[model::exit_rule_names().at(static_cast<size_t>(kind))] =
        exit_curve_json(exit_curve(all, {.kind = kind, .temperatures = temperatures}));
  return kept;
}

}  // namespace funicular::objective
