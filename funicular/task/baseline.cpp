#include "funicular/task/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "funicular/objective/tag_metrics.h"
#include "funicular/task/label_report.h"

namespace funicular::task {

namespace {

Baseline most_frequent_class(const data::TokenStore& trained, const data::TokenStore& evaluated) {
  const std::vector<int64_t> known = rows_of_classes(trained), asked = rows_of_classes(evaluated);
  const auto most = static_cast<size_t>(std::max_element(known.begin(), known.end()) - known.begin());
  const std::string& name = trained.meta().label_names.at(most);
  const int64_t all = std::accumulate(asked.begin(), asked.end(), int64_t{0});  // rows, or words
  return {
      fmt::format("always \"{}\"", name),
      {{"accuracy", static_cast<double>(asked.at(most)) / static_cast<double>(std::max<int64_t>(all, 1))}}};
}

/// The F1 of the entities if each word has the tag `always`. Without entities, as for O, it is 0.
double entity_f1(const data::TokenStore& evaluated, std::string_view always, objective::TagScheme scheme) {
  const std::vector<std::string>& names = evaluated.meta().label_names;
  objective::EntityCounts counts;
  for (int64_t row = 0; row < evaluated.rows(); ++row) {
    std::vector<std::string_view> tags;
    for (const int32_t tag : evaluated.row(row).label_set) tags.push_back(names.at(static_cast<size_t>(tag)));
    const std::vector<std::string_view> given(tags.size(), always);
    const auto right = objective::entities_of(tags, scheme), found = objective::entities_of(given, scheme);
    counts.there += std::ssize(right);
    counts.predicted += std::ssize(found);
    for (const objective::Entity& entity : found)
      counts.right += std::find(right.begin(), right.end(), entity) != right.end();
  }
  return counts.f1();
}

Baseline most_frequent_tag(const data::TokenStore& trained, const data::TokenStore& evaluated) {
  Baseline found = most_frequent_class(trained, evaluated);
  const objective::TagScheme scheme = objective::tag_scheme(evaluated.meta().label_names);
  if (scheme == objective::TagScheme::none) return found;
  const std::vector<int64_t> known = rows_of_classes(trained);
  const auto most = std::max_element(known.begin(), known.end()) - known.begin();
  const std::string& tag = trained.meta().label_names.at(static_cast<size_t>(most));
  found.scores.emplace_back("f1", entity_f1(evaluated, tag, scheme));
  return found;
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
  return {fmt::format("always {:.4g}", median),
          {{"mean_absolute_error", error / static_cast<double>(evaluated.rows())}}};
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
  return {"the same for each text", {{"average_precision", labels > 0 ? sum / labels : 0}}};
}

std::optional<Baseline> best_constant(const data::TokenStore& trained, const data::TokenStore& evaluated) {
  switch (evaluated.meta().labels) {
    case data::LabelKind::classes:
    case data::LabelKind::shares:
      return most_frequent_class(trained, evaluated);
    case data::LabelKind::values:
      return median_number(trained, evaluated);
    case data::LabelKind::sets:
    case data::LabelKind::set_shares:
      return no_choice(evaluated);
    case data::LabelKind::tags:
      return most_frequent_tag(trained, evaluated);
    case data::LabelKind::none:
    case data::LabelKind::numbers:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> Baseline::score_of(const std::string& metric) const {
  const auto found =
      std::find_if(scores.begin(), scores.end(), [&](const auto& score) { return score.first == metric; });
  return found == scores.end() ? std::nullopt : std::optional(found->second);
}

OrderedJson Baseline::json() const {
  OrderedJson json{{"answer", answer}};
  for (const auto& [metric, score] : scores) json[metric] = score;
  return json;
}

std::optional<Baseline> find_baseline(const data::TokenStore& trained, const data::TokenStore& evaluated,
                                      const std::function<bool(const std::string& metric)>& measures) {
  std::optional<Baseline> found = best_constant(trained, evaluated);
  if (!found) return found;
  std::erase_if(found->scores, [&](const auto& score) { return !measures(score.first); });
  return found->scores.empty() ? std::nullopt : found;
}

}  // namespace funicular::task
