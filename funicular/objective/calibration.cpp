#include "funicular/objective/calibration.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "funicular/base/error.h"

namespace funicular::objective {

double fit_temperature(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor own = logits.to(at::kCPU, at::kDouble);
  const bool several = labels.dim() > 1;
  const at::Tensor truth = labels.to(at::kCPU, several ? at::kDouble : at::kLong);
  const auto loss = [&](double logarithm) {
    const at::Tensor scaled = own / std::exp(logarithm);
    return (several ? at::binary_cross_entropy_with_logits(scaled, truth)
                    : at::cross_entropy_loss(scaled, truth))
        .item<double>();
  };
  // Golden section: the loss has one minimum in 1 / T, and the logarithm keeps their order.
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  double low = -kTemperatureLogarithm, high = kTemperatureLogarithm;
  for (int step = 0; step < 40; ++step) {
    const double a = high - ratio * (high - low), b = low + ratio * (high - low);
    if (loss(a) < loss(b))
      high = b;
    else
      low = a;
  }
  return std::exp((low + high) / 2);
}

double expected_calibration_error(const Judged& answers) {
  constexpr size_t kBins = 15;
  std::vector<double> gaps(kBins);  // the sum of truth − confidence
  for (size_t i = 0; i < answers.confidence.size(); ++i) {
    const double place = std::ceil(answers.confidence[i] * kBins) - 1;
    gaps[static_cast<size_t>(std::clamp(place, 0.0, kBins - 1.0))] +=
        answers.truth[i] - answers.confidence[i];
  }
  double sum = 0;
  for (const double gap : gaps) sum += std::abs(gap);
  return answers.confidence.empty() ? 0 : sum / static_cast<double>(answers.confidence.size());
}

namespace {

/// The points of the coverage curve, the highest confidence first; answers with equal confidence form one point.
std::vector<CoveragePoint> all_points(const Judged& answers) {
  std::vector<size_t> order(answers.confidence.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return answers.confidence[a] > answers.confidence[b]; });
  std::vector<CoveragePoint> points;
  double right = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    right += answers.truth[order[i]];
    const double confidence = answers.confidence[order[i]];
    if (i + 1 < order.size() && answers.confidence[order[i + 1]] == confidence) continue;
    const auto given = static_cast<double>(i + 1);
    points.push_back({confidence, given / static_cast<double>(order.size()), right / given});
  }
  return points;
}

}  // namespace

std::vector<CoveragePoint> coverage_curve(const Judged& answers) {
  const std::vector<CoveragePoint> all = all_points(answers);
  std::vector<CoveragePoint> curve;
  for (const CoveragePoint& point : all)
    if (curve.empty() || &point == &all.back() ||
        point.coverage >= curve.back().coverage + 1.0 / (kCoveragePoints - 1))
      curve.push_back(point);
  return curve;
}

double area_under_risk_coverage(const Judged& answers) {
  double area = 0, before = 0;
  for (const CoveragePoint& point : all_points(answers)) {
    area += (point.coverage - before) * (1 - point.accuracy);
    before = point.coverage;
  }
  return area;
}

std::optional<CoveragePoint> widest_coverage(const std::vector<CoveragePoint>& curve, double accuracy) {
  std::optional<CoveragePoint> best;
  for (const CoveragePoint& point : curve)
    if (point.accuracy >= accuracy && (!best || point.coverage > best->coverage)) best = point;
  return best;
}

Json coverage_json(const std::vector<CoveragePoint>& curve) {
  Json all = Json::array();
  for (const CoveragePoint& point : curve)
    all.push_back(
        {{"threshold", point.threshold}, {"coverage", point.coverage}, {"accuracy", point.accuracy}});
  return all;
}

std::vector<CoveragePoint> read_coverage(const Json& json, const std::string& origin) {
  if (!json.is_array()) throw InputError("json", "{}: expected a list of thresholds", origin);
  std::vector<CoveragePoint> curve;
  for (const Json& point : json)
    curve.push_back({json_get<double>(point, "threshold", origin),
                     json_get<double>(point, "coverage", origin),
                     json_get<double>(point, "accuracy", origin)});
  return curve;
}

}  // namespace funicular::objective
