#pragma once
// The curve of early exit: mean layers and accuracy at each threshold, from the answers of all exits to evaluated rows.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "funicular/base/json.h"
#include "funicular/model/early_exit.h"

namespace funicular::objective {

/// The answers of all exits to some rows, the last layer's behind them.
struct ExitAnswers {
  at::Tensor logits;            ///< [R, exits, classes]
  at::Tensor labels;            ///< [R] int64
  std::vector<int64_t> layers;  ///< of each exit, how many layers a row went through
};

struct ExitPoint {
  double threshold = 0, mean_layers = 0, accuracy = 0;
};

/// The mean number of layers and the accuracy at one threshold of the rule.
ExitPoint exit_point(const ExitAnswers& answers, const model::ExitRule& rule);

/// Points from "every row leaves at the first exit" to "no row leaves early", with at most this many thresholds in
/// between, which are quantiles of the scores. Ordered by mean_layers; of two thresholds with the same answers one
/// stands for both.
inline constexpr int64_t kExitThresholds = 40;
std::vector<ExitPoint> exit_curve(const ExitAnswers& answers, const model::ExitRule& rule);

/// The temperature of each exit that makes the labels most probable (Guo et al., "On Calibration of Modern Neural
/// Networks", 2017).
std::vector<double> fit_temperatures(const ExitAnswers& answers);

/// The point with the greatest accuracy among those with at most `layers` layers; none: there is none.
std::optional<ExitPoint> most_accurate(const std::vector<ExitPoint>& curve, double layers);
/// The point with the fewest layers among those with at least this accuracy; none: there is none.
std::optional<ExitPoint> fewest_layers(const std::vector<ExitPoint>& curve, double accuracy);

Json exit_curve_json(const std::vector<ExitPoint>& curve);
/// Throws InputError naming `origin` for what exit_curve_json did not write.
std::vector<ExitPoint> read_exit_curve(const Json& json, const std::string& origin);

}  // namespace funicular::objective
