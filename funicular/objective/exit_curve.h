#pragma once
// The trade-off curve of early exit: mean layers and accuracy at each threshold, from the answers of all exits to
// evaluated rows.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/model/early_exit.h"

namespace funicular::objective {

/// The answers of all exits to some rows; the last layer counts as the last exit.
struct ExitAnswers {
  at::Tensor logits;            ///< [R, exits, classes]
  at::Tensor labels;            ///< [R] int64
  std::vector<int64_t> layers;  ///< per exit: the number of layers that a row passes
};

struct ExitPoint {
  double threshold = 0, mean_layers = 0, accuracy = 0;
};

/// The mean number of layers and the accuracy at one threshold of the rule.
ExitPoint exit_point(const ExitAnswers& answers, const model::ExitRule& rule);

/// Returns points from "every row leaves at the first exit" to "no row leaves early". At most kExitThresholds
/// thresholds lie in between, at quantiles of the scores. Points are ordered by mean_layers. Thresholds with equal
/// mean_layers and accuracy become one point.
inline constexpr int64_t kExitThresholds = 40;
std::vector<ExitPoint> exit_curve(const ExitAnswers& answers, const model::ExitRule& rule);

/// Fits the temperature of each exit that makes the labels most probable (Guo et al., "On Calibration of Modern
/// Neural Networks", 2017).
std::vector<double> fit_temperatures(const ExitAnswers& answers);

/// Finds the most accurate point with at most `layers` mean layers, if any.
std::optional<ExitPoint> most_accurate(const std::vector<ExitPoint>& curve, double layers);
/// Finds the point with the fewest mean layers that reaches at least this accuracy, if any.
std::optional<ExitPoint> fewest_layers(const std::vector<ExitPoint>& curve, double accuracy);

Json exit_curve_json(const std::vector<ExitPoint>& curve);
/// Throws InputError naming `origin` for JSON that exit_curve_json did not write.
std::vector<ExitPoint> read_exit_curve(const Json& json, const std::string& origin);

}  // namespace funicular::objective
