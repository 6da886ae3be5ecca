#pragma once
// Calibration of probabilities: fits a temperature, and measures the calibration error.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "funicular/base/json.h"

namespace funicular::objective {

/// The search for a temperature ends at e to this power, and at its inverse.
inline constexpr double kTemperatureLogarithm = 3;

/// The temperature T at which softmax(logits / T), or sigmoid(logits / T) for several labels, makes the labels most
/// probable. Guo et al., "On Calibration of Modern Neural Networks", ICML 2017. logits: [R, C]. labels: [R] int64 for
/// classes, [R, C] of 0 and 1 for several labels.
double fit_temperature(const at::Tensor& logits, const at::Tensor& labels);

/// Answers that are right or wrong, with their confidence.
struct Judged {
  std::vector<double> confidence;  ///< 0 to 1
  std::vector<double> truth;       ///< 1: right (or the label applies); 0: not
};

/// Expected calibration error: the mean over 15 bins of equal width of |share of truths − mean confidence|, weighted
/// by the answers in a bin. A bin includes its upper bound.
double expected_calibration_error(const Judged& answers);

/// The result of giving only the answers with at least this confidence.
struct CoveragePoint {
  double threshold = 0;
  double coverage = 0;  ///< the share of answers that are given
  double accuracy = 0;  ///< the share of right answers among them
};
/// At most this many points, from the most confident answers to all answers. Answers with equal confidence form one
/// point.
inline constexpr int64_t kCoveragePoints = 50;
std::vector<CoveragePoint> coverage_curve(const Judged& answers);
/// The mean share of wrong answers over all coverages; 0 is best (Geifman and El-Yaniv 2017, area under the
/// risk–coverage curve).
double area_under_risk_coverage(const Judged& answers);
/// Finds the point that gives the most answers with this accuracy; none if no point has it.
std::optional<CoveragePoint> widest_coverage(const std::vector<CoveragePoint>& curve, double accuracy);

Json coverage_json(const std::vector<CoveragePoint>& curve);
/// Throws InputError naming `origin` for JSON that coverage_json did not write.
std::vector<CoveragePoint> read_coverage(const Json& json, const std::string& origin);

}  // namespace funicular::objective
