#pragma once
// Finds where to cut a model by the costs of its segments, with the dynamic programme of Narayanan et al.,
// "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP 2019, section 3.1.

#include <cstddef>
#include <vector>

namespace funicular::pipeline {

/// Measured costs of consecutive segments, for one micro-batch.
struct SegmentCosts {
  std::vector<double> seconds;           ///< forward and backward, per segment
  std::vector<double> weight_bytes;      ///< weights whose gradients replicas exchange, per segment
  std::vector<double> activation_bytes;  ///< output of segment i for later segments; one fewer than segments
  std::vector<bool>
      may_cut{};  ///< whether to allow a cut behind segment i; one fewer than segments; empty: everywhere
  double bytes_per_second = 0;  ///< between two workers; 0: messages take no time
};

/// Segments [begin, end) on `workers` workers, which share the micro-batches.
struct Part {
  size_t begin = 0, end = 0;
  int workers = 1;
  bool operator==(const Part&) const = default;
};

struct Partition {
  std::vector<Part> parts;
  double seconds = 0;  ///< time per micro-batch in the steady state: of the slowest part or message
};

/// The time of a part on m workers per micro-batch: (seconds + 4 (m − 1) weight_bytes / (m bytes_per_second)) / m.
double seconds_of(const SegmentCosts& costs, const Part& part);

/// Returns the fastest partition for exactly `workers` workers; parts may have several workers. A cut takes 2
/// activation_bytes / bytes_per_second, for both directions. Ties go to the fewest parts, then to the largest first
/// parts. Throws InputError for negative costs, for numbers of costs that do not match the segments, and for no
/// worker.
Partition best_partition(const SegmentCosts& costs, int workers);

/// Returns the fastest partition into exactly `parts` parts of `replicas` workers each. Throws InputError for fewer
/// segments than parts, and if too few cuts are allowed.
Partition best_cut(const SegmentCosts& costs, int parts, int replicas = 1);

}  // namespace funicular::pipeline
