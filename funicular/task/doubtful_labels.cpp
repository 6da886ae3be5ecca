#include "funicular/task/doubtful_labels.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace funicular::task {

namespace {

/// Weight of the next quality in the average, as cleanlab has it.
constexpr double kNewest = 0.8;

double row_quality(const JudgedLabels& rows, int64_t row, SuspectOrder order) {
  std::vector<double> qualities;
  for (int64_t label = 0; label < rows.labels; ++label) {
    if (!rows.knows(row, label)) continue;
    const double applies = rows.probability(row, label);
    const bool has = rows.has(row, label);
    const double own = has ? applies : 1 - applies, other = has ? 1 - applies : applies;
    qualities.push_back(order == SuspectOrder::self_confidence ? own : (own - other + 1) / 2);
  }
  std::sort(qualities.begin(), qualities.end(), std::greater<>());
  double average = qualities.front();
  for (size_t i = 1; i < qualities.size(); ++i) average = kNewest * qualities[i] + (1 - kNewest) * average;
  return average;
}

}  // namespace

JudgedRows JudgedLabels::of(int64_t label) const {
  JudgedRows binary{.classes = 2};
  for (int64_t row = 0; row < rows(); ++row) {
    if (!knows(row, label)) continue;
    binary.labels.push_back(has(row, label));
    binary.probabilities.push_back(1 - probability(row, label));
    binary.probabilities.push_back(probability(row, label));
  }
  return binary;
}

std::vector<DoubtfulRow> find_doubtful(const JudgedLabels& rows, SuspectFilter filter, SuspectOrder order) {
  std::vector<DoubtfulRow> all(static_cast<size_t>(rows.rows()));
  for (int64_t label = 0; label < rows.labels; ++label) {
    std::vector<size_t> known;  // the numbers of the rows that are judged
    for (int64_t row = 0; row < rows.rows(); ++row)
      if (rows.knows(row, label)) known.push_back(static_cast<size_t>(row));
    if (known.empty()) continue;
    for (const Suspect& found : find_suspects(rows.of(label), filter, order))
      all[known[static_cast<size_t>(found.row)]].doubtful.push_back(label);
  }
  std::vector<std::pair<double, DoubtfulRow>> unsorted;  // by quality before rounding: ties are cleanlab's
  for (int64_t row = 0; row < rows.rows(); ++row) {
    DoubtfulRow& own = all[static_cast<size_t>(row)];
    if (own.doubtful.empty()) continue;
    const double quality = row_quality(rows, row, order);
    own.row = row;
    own.certainty = 1 - quality;
    unsorted.emplace_back(quality, std::move(own));
  }
  std::stable_sort(unsorted.begin(), unsorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<DoubtfulRow> found;
  for (auto& [quality, row] : unsorted) found.push_back(std::move(row));
  return found;
}

}  // namespace funicular::task
