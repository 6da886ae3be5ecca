#pragma once
// Finds where to cut a model, by the cost of its segments: the dynamic programme of Narayanan et al.,
// "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.1.

#include <cstddef>
#include <vector>

namespace funicular::pipeline {

/// Measured costs of a row of segments, for one micro-batch.
struct SegmentCosts {
  std::vector<double> seconds;           ///< forward and backward, of each segment
  std::vector<double> weight_bytes;      ///< whose gradients replicas exchange, of each segment
  std::vector<double> activation_bytes;  ///< what segment i leaves for those behind it; of all but the last
  std::vector<bool> may_cut{};           ///< behind segment i; of all but the last; empty: everywhere
  double bytes_per_second = 0;           ///< between two workers; 0: messages take no time
};

/// Segments [begin, end) on so many workers, each of which takes its share of the micro-batches.
struct Part {
  size_t begin = 0, end = 0;
  int workers = 1;
  bool operator==(const Part&) const = default;
};

struct Partition {
  std::vector<Part> parts;
  double seconds = 0;  ///< from one micro-batch to the next: of the slowest part or message
};

/// Of a part on m workers: (seconds + 4 (m − 1) weight bytes / (m bytes a second)) / m; of a cut: 2 activation bytes / bytes a
/// second, there and back. Infinite across a border where the model may not be cut.
double seconds_of(const SegmentCosts& costs, const Part& part);

/// The partition of the least seconds over exactly so many workers, parts with several workers included; of equal ones the
/// one with the fewest parts, then whose first parts are the largest. Throws InputError for costs that are negative or not as
/// many as there are segments, and where there is no worker.
Partition best_partition(const SegmentCosts& costs, int workers);

/// The same for exactly so many parts of `replicas` workers each. Throws InputError where there are fewer segments, or
/// nowhere to cut.
Partition best_cut(const SegmentCosts& costs, int parts, int replicas = 1);

}  // namespace funicular::pipeline
