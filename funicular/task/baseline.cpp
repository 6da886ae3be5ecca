#include "funicular/task/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "funicular/task/label_report.h"

namespace funicular::task {

namespace {

Baseline most_frequent_class(const data::TokenStore& trained, const data::TokenStore& evaluated) {
  const std::vector<int64_t> known = rows_of_classes(trained), asked = rows_of_classes(evaluated);
  const auto most = static_cast<size_t>(std::max_element(known.begin(), known.end()) - known.begin());
  const std::string& name = trained.meta().label_names.at(most);
  return {fmt::format("always \"{}\"", name), "accuracy",
          static_cast<double>(asked.at(most)) / static_cast<double>(evaluated.rows())};
}

/// No constant has a smaller mean absolute error on the training rows than their median.
Baseline median_number(const data::TokenStore& trained, const data::TokenStore& evaluated) {
  std::vector<double> numbers;
  for (int64_t row = 0; row < trained.rows(); ++row) numbers.push_back(trained.row(row).label);
  const auto upper = numbers.begin() + std::ssize(numbers) / 2;
  std::nth_element(numbers.begin(), upper, numbers.end());
  const double lower = numbers.size() % 2 == 1 ? *upper : *std::max_element(numbers.begin(), upper);
  const double median = lower + (*upper - lower) / 2;
  double error = 0;
  for (int64_t row = 0; row < evaluated.rows(); ++row) error += std::abs(evaluated.row(row).label - median);
  return {fmt::format("always {:.4g}", median), "mean_absolute_error",
          error / static_cast<double>(evaluated.rows())};
}

/// If all texts have the same probability of a label, its average precision is the share of the known rows that have
/// it. A label that no row knows is left out, as in the metric.
Baseline no_choice(const data::TokenStore& evaluated) {
  const std::vector<int64_t> rows = rows_of_classes(evaluated), known = known_rows_of_labels(evaluated);
  double sum = 0, labels = 0;
  for (size_t label = 0; label < rows.size(); ++label) {
    if (known[label] == 0) continue;
    sum += static_cast<double>(rows[label]) / static_cast<double>(known[label]);
    ++labels;
  }
  return {"the same for each text", "average_precision", labels > 0 ? sum / labels : 0};
}

}  // namespace

OrderedJson Baseline::json() const {
  return {{"answer", answer}, {metric, score}};
}

std::optional<Baseline> find_baseline(const data::TokenStore& trained, const data::TokenStore& evaluated) {
  switch (evaluated.meta().labels) {
    case data::LabelKind::classes:
    case data::LabelKind::shares:
      return most_frequent_class(trained, evaluated);
    case data::LabelKind::values:
      return median_number(trained, evaluated);
    case data::LabelKind::sets:
    case data::LabelKind::set_shares:
      return no_choice(evaluated);
    case data::LabelKind::none:
    case data::LabelKind::tags:
    case data::LabelKind::numbers:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace funicular::task
