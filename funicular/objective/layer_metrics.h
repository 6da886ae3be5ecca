#pragma once
// Metrics of classifiers on several layers, and the note on exits in config.json.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "funicular/core/metrics.h"
#include "funicular/objective/exit_curve.h"

namespace funicular::objective {

/// The metric by which the best exits or probes are chosen: the mean accuracy over the layers.
inline constexpr const char* kMeanLayerAccuracy = "mean_layer_accuracy";
/// The name of a layer's metric: "layer_3_accuracy".
std::string layer_metric(int64_t layer, const std::string& metric);

/// Accuracy and macro F1 of each layer, from the outputs `layer_logits` [R, layers, classes] and `labels` [R].
class LayerMetrics final : public Metrics {
 public:
  /// `inner`: further metrics to report; may be null. `layers`: the layers' numbers. `note`: an object to which
  /// kept() adds the curves; null: no note.
  LayerMetrics(std::unique_ptr<Metrics> inner, std::vector<int64_t> layers, Json note);
  void start() override;
  void add(const TensorMap& outputs) override;
  std::map<std::string, double> finish(double loss) override;
  /// Under kExitsNote: the note with "temperatures" and a curve per exit rule (exit_curve_json).
  Json kept() const override;

 private:
  ExitAnswers answers() const;

  std::unique_ptr<Metrics> inner_;
  std::vector<int64_t> layers_;
  Json note_;
  std::vector<at::Tensor> logits_, labels_;
};

/// The key in config.json's "funicular" that marks a model with exits.
inline constexpr const char* kExitsNote = "early_exit";

}  // namespace funicular::objective
