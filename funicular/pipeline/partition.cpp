#include "funicular/pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "funicular/base/error.h"

namespace funicular::pipeline {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

void check_costs(const SegmentCosts& costs) {
  const size_t segments = costs.seconds.size();
  const auto borders = segments == 0 ? 0 : segments - 1;
  if (segments == 0 || costs.weight_bytes.size() != segments || costs.activation_bytes.size() != borders ||
      (!costs.may_cut.empty() && costs.may_cut.size() != borders))
    throw InputError("partition",
                     "costs of {} segments with {} sizes of weights and {} of activations. Expected at least "
                     "1 segment, as "
                     "many sizes of weights, and one size of activations fewer",
                     segments, costs.weight_bytes.size(), costs.activation_bytes.size());
  for (const auto* values : {&costs.seconds, &costs.weight_bytes, &costs.activation_bytes})
    for (const double value : *values)
      if (!(value >= 0) || std::isinf(value))
        throw InputError("partition", "a cost of {}; expected finite values of at least 0", value);
}

double seconds_between(const SegmentCosts& costs, size_t border) {
  if (!costs.may_cut.empty() && !costs.may_cut[border]) return kNever;
  return costs.bytes_per_second > 0 ? 2 * costs.activation_bytes[border] / costs.bytes_per_second : 0;
}

/// The dynamic programme: builds the best partitions of the first n segments from the best partitions of fewer
/// segments.
class Table {
 public:
  Table(const SegmentCosts& costs, int workers)
      : costs_(costs),
        segments_(costs.seconds.size()),
        workers_(static_cast<size_t>(workers)),
        best_(segments_ + 1, std::vector<Cell>(workers_ + 1)) {}

  /// Fills best(segments, workers), trying last parts of `sizes` workers.
  void fill(const std::vector<int>& sizes) {
    best_[0][0].seconds = 0;
    for (size_t end = 1; end <= segments_; ++end)
      for (size_t workers = 1; workers <= workers_; ++workers)
        for (const int size : sizes)
          if (static_cast<size_t>(size) <= workers) extend(end, workers, size);
  }
  Partition partition() const {
    Partition result;
    result.seconds = best_[segments_][workers_].seconds;
    for (size_t end = segments_, workers = workers_; end > 0;) {
      const Cell& cell = best_[end][workers];
      result.parts.push_back({cell.begin, end, cell.size});
      end = cell.begin;
      workers -= static_cast<size_t>(cell.size);
    }
    std::reverse(result.parts.begin(), result.parts.end());
    return result;
  }
  bool found() const { return best_[segments_][workers_].seconds < kNever; }

 private:
  struct Cell {
    double seconds = kNever;
    size_t parts = 0;
    size_t begin = 0;  ///< first segment of the last part
    int size = 0;      ///< workers of the last part
  };

  void extend(size_t end, size_t workers, int size) {
    Cell& cell = best_[end][workers];
    for (size_t begin = end; begin-- > 0;) {
      const Cell& before = best_[begin][workers - static_cast<size_t>(size)];
      if (before.seconds == kNever) continue;
      const double border = begin == 0 ? 0 : seconds_between(costs_, begin - 1);
      const double seconds = std::max({before.seconds, border, seconds_of(costs_, {begin, end, size})});
      if (seconds == kNever) continue;
      const bool better = seconds < cell.seconds ||
                          (seconds == cell.seconds && before.parts + 1 < cell.parts) ||
                          (seconds == cell.seconds && before.parts + 1 == cell.parts && begin > cell.begin);
      if (better) cell = {seconds, before.parts + 1, begin, size};
    }
  }

  const SegmentCosts& costs_;
  const size_t segments_, workers_;
  std::vector<std::vector<Cell>> best_;
};

}  // namespace

double seconds_of(const SegmentCosts& costs, const Part& part) {
  double seconds = 0, bytes = 0;
  for (size_t i = part.begin; i < part.end; ++i) {
    seconds += costs.seconds[i];
    bytes += costs.weight_bytes[i];
  }
  const double m = part.workers;
  if (costs.bytes_per_second > 0) seconds += 4 * (m - 1) * bytes / (m * costs.bytes_per_second);
  return seconds / m;
}

Partition best_partition(const SegmentCosts& costs, int workers) {
  check_costs(costs);
  if (workers < 1) throw InputError("partition", "expected at least 1 worker, found {}", workers);
  std::vector<int> sizes;
  for (int size = 1; size <= workers; ++size) sizes.push_back(size);
  Table table(costs, workers);
  table.fill(sizes);
  return table.partition();  // one part is always one
}

Partition best_cut(const SegmentCosts& costs, int parts, int replicas) {
  check_costs(costs);
  if (parts < 1 || replicas < 1)
    throw InputError("partition", "expected at least 1 part of 1 worker, found {} of {}", parts, replicas);
  Table table(costs, parts * replicas);
  table.fill({replicas});
  if (!table.found())
    throw InputError("partition", "{} segments cannot be cut into {} parts", costs.seconds.size(), parts);
  return table.partition();
}

}  // namespace funicular::pipeline
