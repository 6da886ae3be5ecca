#include "funicular/task/confident_learning.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace funicular::task {

namespace {

/// cleanlab's tolerances.
constexpr double kTolerance = 1e-6, kLeastThreshold = 2e-6, kNoThreshold = 2;

using JointCounts = std::vector<std::vector<int64_t>>;

int64_t greatest(std::span<const double> values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

/// The most probable class other than `label`.
int64_t best_other(std::span<const double> probabilities, int64_t label) {
  int64_t best = label == 0 ? 1 : 0;
  for (int64_t other = 0; other < std::ssize(probabilities); ++other)
    if (other != label &&
        probabilities[static_cast<size_t>(other)] > probabilities[static_cast<size_t>(best)])
      best = other;
  return best;
}

/// Indices of the values, ascending.
std::vector<size_t> ascending_places(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  return order;
}

/// Rounds to whole numbers that keep the sum of the values: the values that rounding changed most are moved by one.
std::vector<int64_t> rounded_to_sum(const std::vector<double>& values) {
  std::vector<double> whole, moved;
  for (const double value : values) {
    whole.push_back(std::nearbyint(value));  // halves to even
    moved.push_back(value - whole.back());
  }
  const double wanted = std::nearbyint(std::accumulate(values.begin(), values.end(), 0.0));
  double missing = wanted - std::accumulate(whole.begin(), whole.end(), 0.0);
  while (std::abs(missing) > kTolerance) {
    std::vector<size_t> order = ascending_places(moved);
    if (missing > 0) std::reverse(order.begin(), order.end());
    const auto changes = std::min(static_cast<size_t>(std::abs(missing)), order.size());
    const double step = missing > 0 ? 1 : -1;
    for (size_t i = 0; i < changes; ++i) {
      whole[order[i]] += step;
      moved[order[i]] -= step;
    }
    missing -= step * static_cast<double>(changes);
  }
  return {whole.begin(), whole.end()};
}

/// The class that the row confidently belongs to; -1 for none.
int64_t confident_class(std::span<const double> probabilities, const std::vector<double>& thresholds) {
  int64_t found = -1, count = 0;
  for (size_t label = 0; label < thresholds.size(); ++label)
    if (probabilities[label] >= thresholds[label] - kTolerance) {
      if (count++ == 0) found = static_cast<int64_t>(label);
    }
  return count > 1 ? greatest(probabilities) : found;
}

std::vector<int64_t> rows_of_labels(const JudgedRows& rows) {
  std::vector<int64_t> counts(static_cast<size_t>(rows.classes));
  for (const int64_t label : rows.labels) ++counts[static_cast<size_t>(label)];
  return counts;
}

/// Scales the joint's rows to the labels' numbers of rows, and rounds.
JointCounts scaled_joint(const JointCounts& joint, const JudgedRows& rows) {
  const std::vector<int64_t> labels = rows_of_labels(rows);
  std::vector<std::vector<double>> scaled(joint.size());
  double sum = 0;
  for (size_t given = 0; given < joint.size(); ++given) {
    const auto all =
        static_cast<double>(std::accumulate(joint[given].begin(), joint[given].end(), int64_t{0}));
    for (const int64_t count : joint[given])
      scaled[given].push_back(static_cast<double>(count) / all * static_cast<double>(labels[given]));
    sum += std::accumulate(scaled[given].begin(), scaled[given].end(), 0.0);
  }
  JointCounts whole;
  for (std::vector<double>& row : scaled) {
    for (double& count : row) count = count / sum * static_cast<double>(rows.rows());
    whole.push_back(rounded_to_sum(row));
  }
  return whole;
}

/// The joint with at least one row left in each class. A row's gain on its diagonal is taken from its other counts in
/// equal parts.
JointCounts with_rows_left(JointCounts joint) {
  for (size_t given = 0; given < joint.size(); ++given) {
    const int64_t kept = std::max<int64_t>(joint[given][given], 1);
    const auto gain = static_cast<double>(kept - joint[given][given]);
    const auto filled =
        std::count_if(joint[given].begin(), joint[given].end(), [](int64_t count) { return count != 0; });
    const double others = std::max(static_cast<double>(filled) - 1, 1.0);
    for (int64_t& count : joint[given])
      count = static_cast<int64_t>(std::max(static_cast<double>(count) - gain / others, 0.0));
    joint[given][given] = kept;
  }
  return joint;
}

using Marks = std::vector<bool>;

/// Marks the `count` rows of a label for which `value` is least.
void mark_least(const JudgedRows& rows, int64_t label, int64_t count,
                const std::function<double(int64_t row)>& value, Marks& found) {
  std::vector<int64_t> own;
  std::vector<double> values;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    if (rows.labels[static_cast<size_t>(row)] != label) continue;
    own.push_back(row);
    values.push_back(value(row));
  }
  const std::vector<size_t> order = ascending_places(values);
  if (own.size() < 2) return;  // the only row of a class stays
  for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(std::max<int64_t>(count, 0))); ++i)
    found[static_cast<size_t>(own[order[i]])] = true;
}

Marks by_noise_rate(const JudgedRows& rows, const JointCounts& joint) {
  Marks found(rows.labels.size());
  for (int64_t given = 0; given < rows.classes; ++given)
    for (int64_t other = 0; other < rows.classes; ++other)
      if (other != given)
        mark_least(
            rows, given, joint[static_cast<size_t>(given)][static_cast<size_t>(other)],
            [&](int64_t row) {
              return rows.of(row)[static_cast<size_t>(given)] - rows.of(row)[static_cast<size_t>(other)];
            },
            found);
  return found;
}

Marks by_class(const JudgedRows& rows, const JointCounts& joint) {
  Marks found(rows.labels.size());
  const std::vector<int64_t> counts = rows_of_labels(rows);
  for (int64_t given = 0; given < rows.classes; ++given) {
    const auto label = static_cast<size_t>(given);
    mark_least(
        rows, given, counts[label] - joint[label][label], [&](int64_t row) { return rows.of(row)[label]; },
        found);
  }
  return found;
}

Marks by_joint(const JudgedRows& rows) {
  const std::vector<double> thresholds = confident_thresholds(rows);
  Marks found(rows.labels.size());
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const int64_t probable = confident_class(rows.of(row), thresholds);
    found[static_cast<size_t>(row)] = probable >= 0 && probable != rows.labels[static_cast<size_t>(row)];
  }
  return found;
}

Marks marks_of(const JudgedRows& rows, SuspectFilter filter) {
  if (filter == SuspectFilter::joint) return by_joint(rows);
  const JointCounts joint = with_rows_left(confident_joint(rows));
  if (filter == SuspectFilter::by_class) return by_class(rows, joint);
  Marks found = by_noise_rate(rows, joint);
  if (filter == SuspectFilter::noise_rate) return found;
  const Marks other = by_class(rows, joint);
  for (size_t row = 0; row < found.size(); ++row) found[row] = found[row] && other[row];
  return found;
}

}  // namespace

const std::vector<std::string>& suspect_filter_names() {
  static const std::vector<std::string> names{"prune-by-noise-rate", "prune-by-class", "both",
                                              "confident-learning"};
  return names;
}

const std::vector<std::string>& suspect_order_names() {
  static const std::vector<std::string> names{"self-confidence", "normalized-margin"};
  return names;
}

std::vector<double> confident_thresholds(const JudgedRows& rows) {
  const std::vector<int64_t> counts = rows_of_labels(rows);
  std::vector<double> thresholds(counts.size());
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const auto label = static_cast<size_t>(rows.labels[static_cast<size_t>(row)]);
    thresholds[label] += rows.of(row)[label];
  }
  for (size_t label = 0; label < counts.size(); ++label)
    thresholds[label] = counts[label] == 0 ? kNoThreshold
                                           : std::max(thresholds[label] / static_cast<double>(counts[label]),
                                                      kLeastThreshold);
  return thresholds;
}

std::vector<std::vector<int64_t>> confident_joint(const JudgedRows& rows) {
  const std::vector<double> thresholds = confident_thresholds(rows);
  JointCounts joint(thresholds.size(), std::vector<int64_t>(thresholds.size()));
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const int64_t probable = confident_class(rows.of(row), thresholds);
    if (probable >= 0)
      ++joint[static_cast<size_t>(rows.labels[static_cast<size_t>(row)])][static_cast<size_t>(probable)];
  }
  for (size_t label = 0; label < joint.size(); ++label)
    joint[label][label] = std::max<int64_t>(joint[label][label], 1);
  return scaled_joint(joint, rows);
}

std::vector<Suspect> find_suspects(const JudgedRows& rows, SuspectFilter filter, SuspectOrder order) {
  const Marks found = marks_of(rows, filter);
  std::vector<Suspect> unsorted;
  std::vector<double> qualities;  // as cleanlab rounds them, so that ties are its ties
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const int64_t label = rows.labels[static_cast<size_t>(row)], other = best_other(rows.of(row), label);
    const double own = rows.of(row)[static_cast<size_t>(label)],
                 best = rows.of(row)[static_cast<size_t>(other)];
    if (!found[static_cast<size_t>(row)] || own + kTolerance >= best) continue;
    qualities.push_back(order == SuspectOrder::self_confidence ? own : (own - best + 1) / 2);
    unsorted.push_back({row, other, 1 - qualities.back()});
  }
  std::vector<Suspect> suspects;
  for (const size_t place : ascending_places(qualities)) suspects.push_back(unsorted[place]);
  return suspects;
}

}  // namespace funicular::task
