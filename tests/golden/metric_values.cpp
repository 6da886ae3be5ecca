// Metrics of the cases on standard input, for metrics.py: a line "classes P… | T…" or "values P… | T…" gives
// a JSON line.

#include <fmt/format.h>

#include <iostream>
#include <sstream>

#include "funicular/base/json.h"
#include "funicular/objective/metrics.h"

namespace {

using namespace funicular;

template <class T>
std::vector<T> read_numbers(std::istream& line) {
  std::vector<T> numbers;
  for (std::string word; line >> word && word != "|";) numbers.push_back(static_cast<T>(std::stod(word)));
  return numbers;
}

std::map<std::string, double> metrics_of(const std::string& text) {
  std::istringstream line(text);
  std::string kind;
  line >> kind;
  if (kind == "values") {
    const auto predicted = read_numbers<double>(line), truth = read_numbers<double>(line);
    return {{"pearson", objective::pearson(predicted, truth)},
            {"spearmanr", objective::spearmanr(predicted, truth)}};
  }
  if (kind == "labels") {  // of three labels: scores, then the truth
    constexpr int64_t kLabels = 3;
    const auto scores = read_numbers<double>(line);
    const auto truth = read_numbers<uint8_t>(line);
    std::vector<uint8_t> predicted;
    for (const double score : scores) predicted.push_back(score >= 0.5);
    return {{"micro_f1", objective::micro_f1(predicted, truth)},
            {"macro_f1", objective::macro_f1(predicted, truth, kLabels)},
            {"average_precision", objective::mean_average_precision(scores, truth, kLabels)}};
  }
  const auto predicted = read_numbers<int64_t>(line), truth = read_numbers<int64_t>(line);
  return objective::compute(objective::classification_metric_names(), predicted, truth);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) fmt::print("{}\n", Json(metrics_of(line)).dump());
}
