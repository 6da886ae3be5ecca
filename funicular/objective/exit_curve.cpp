#include "funicular/objective/exit_curve.h"

#include <torch/types.h>

#include <algorithm>
#include <set>
#include <utility>

#include "funicular/objective/calibration.h"

namespace funicular::objective {

namespace {

using model::ExitRule;

/// The scores of all exits but the last, and whether each answer is right.
struct Scored {
  int64_t rows = 0, exits = 0;
  std::vector<double> scores = {};  ///< [rows, exits - 1]
  std::vector<bool> right = {};     ///< [rows, exits]
};

Scored score(const ExitAnswers& answers, const ExitRule& rule) {
  const at::Tensor probabilities = answers.logits.to(at::kCPU, at::kFloat).softmax(-1).contiguous();
  const at::Tensor right = probabilities.argmax(-1).eq(answers.labels.to(at::kCPU).unsqueeze(1)).contiguous();
  Scored found{.rows = probabilities.size(0), .exits = probabilities.size(1)};
  const auto classes = static_cast<size_t>(probabilities.size(2));
  const float* next = probabilities.const_data_ptr<float>();
  const bool* answer = right.const_data_ptr<bool>();
  for (int64_t row = 0; row < found.rows; ++row)
    for (int64_t exit = 0; exit < found.exits; ++exit, next += classes) {
      if (exit + 1 < found.exits)
        found.scores.push_back(rule.score({next, classes}, static_cast<size_t>(exit)));
      found.right.push_back(*answer++);
    }
  return found;
}

ExitPoint point_of(const Scored& scored, const ExitAnswers& answers, const ExitRule& rule) {
  int64_t layers = 0, right = 0;
  const auto exits = static_cast<size_t>(scored.exits);
  for (size_t row = 0; row < static_cast<size_t>(scored.rows); ++row) {
    size_t exit = 0;
    while (exit + 1 < exits && !rule.leaves(scored.scores[row * (exits - 1) + exit])) ++exit;
    layers += answers.layers.at(exit);
    right += scored.right[row * exits + exit];
  }
  const auto rows = static_cast<double>(scored.rows);
  return {rule.threshold, static_cast<double>(layers) / rows, static_cast<double>(right) / rows};
}

/// Thresholds at which every row leaves, at which none does, and some between the scores. Each lies midway between two
/// scores, so that rounding changes no answer.
std::set<double> thresholds_of(std::vector<double> scores) {
  constexpr double kBeyondAll = 1.01;
  std::set<double> thresholds{0, kBeyondAll};
  std::sort(scores.begin(), scores.end());
  for (int64_t i = 1; !scores.empty() && i <= kExitThresholds; ++i) {
    const double score = scores[(scores.size() - 1) * static_cast<size_t>(i) / (kExitThresholds + 1)];
    const auto next = std::upper_bound(scores.begin(), scores.end(), score);
    if (next != scores.end()) thresholds.insert((score + *next) / 2);
  }
  return thresholds;
}

}  // namespace

ExitPoint exit_point(const ExitAnswers& answers, const ExitRule& rule) {
  return point_of(score(answers, rule), answers, rule);
}

std::vector<ExitPoint> exit_curve(const ExitAnswers& answers, const ExitRule& rule) {
  const Scored scored = score(answers, rule);
  std::vector<ExitPoint> curve;
  for (const double threshold : thresholds_of(scored.scores)) {
    ExitRule one = rule;
    one.threshold = threshold;
    curve.push_back(point_of(scored, answers, one));
  }
  std::stable_sort(curve.begin(), curve.end(),
                   [](const ExitPoint& a, const ExitPoint& b) { return a.mean_layers < b.mean_layers; });
  const auto same = [](const ExitPoint& a, const ExitPoint& b) {
    return a.mean_layers == b.mean_layers && a.accuracy == b.accuracy;
  };
  curve.erase(std::unique(curve.begin(), curve.end(), same), curve.end());
  return curve;
}

std::vector<double> fit_temperatures(const ExitAnswers& answers) {
  const at::Tensor logits = answers.logits.to(at::kCPU, at::kDouble), labels = answers.labels.to(at::kCPU);
  std::vector<double> found;
  for (int64_t exit = 0; exit < logits.size(1); ++exit)
    found.push_back(fit_temperature(logits.select(1, exit), labels));
  return found;
}

std::optional<ExitPoint> most_accurate(const std::vector<ExitPoint>& curve, double layers) {
  std::optional<ExitPoint> best;
  for (const ExitPoint& point : curve)
    if (point.mean_layers <= layers && (!best || point.accuracy > best->accuracy)) best = point;
  return best;
}

std::optional<ExitPoint> fewest_layers(const std::vector<ExitPoint>& curve, double accuracy) {
  const auto found = std::find_if(curve.begin(), curve.end(),
                                  [&](const ExitPoint& point) { return point.accuracy >= accuracy; });
  return found == curve.end() ? std::nullopt : std::optional(*found);
}

Json exit_curve_json(const std::vector<ExitPoint>& curve) {
  Json all = Json::array();
  for (const ExitPoint& point : curve)
    all.push_back(
        {{"threshold", point.threshold}, {"mean_layers", point.mean_layers}, {"accuracy", point.accuracy}});
  return all;
}

std::vector<ExitPoint> read_exit_curve(const Json& json, const std::string& origin) {
  std::vector<ExitPoint> curve;
  if (!json.is_array()) throw InputError("json", "{}: expected a list of thresholds", origin);
  for (const Json& point : json)
    curve.push_back({json_get<double>(point, "threshold", origin),
                     json_get<double>(point, "mean_layers", origin),
                     json_get<double>(point, "accuracy", origin)});
  return curve;
}

}  // namespace funicular::objective
