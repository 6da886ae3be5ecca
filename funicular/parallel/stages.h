#pragma once
// A model cut into stages for a pipeline: which segments each has, and what passes from one to the next.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// A tensor that the stages before leave for this one or for one behind it.
struct Crossing {
  const Port* port = nullptr;  ///< of the segment that gives it
  bool learns = false;         ///< floating, and weights before it train: its gradient is sent back

  const std::string& name() const { return port->name; }
  std::vector<int64_t> shape(const MicroBatch& batch) const { return port->shape(batch); }
};

/// Segments [begin, end).
struct Stage {
  size_t begin = 0, end = 0;
  std::vector<Crossing> inputs;  ///< by name; what the stage before sends
};

/// Throws InputError where the model has fewer segments than stages.
void require_segments(const Model& model, size_t stages);

/// Where each of `stages` stages begins, so that the largest has as few weights as can be: the partition of a row
/// with the least maximum, by dynamic programming; of equal ones that whose first stages are the largest. A weight
/// counts in each segment that uses it, since each multiplies by it: layers of an ALBERT share weights and cost alike.
/// A segment that reads nothing but whole numbers looks its tables up, which costs little, and counts as none. Its
/// tables count nowhere: a tied decoder reads few tokens. Throws InputError where there are fewer segments than stages.
std::vector<size_t> balanced_begins(const Model& model, int stages);

/// Whether a stage may begin with this segment: what crosses the border has a shape that its segment declares.
bool can_cut(const Model& model, size_t segment);

/// The stages that begin at these segments, the first at 0. The model must outlive them. Throws InputError for
/// numbers that do not ascend or are beyond the segments, and for a cut across an activation whose shape its segment
/// does not declare.
std::vector<Stage> cut_stages(const Model& model, const std::vector<size_t>& begins);

/// A warning where all weights that learn lie in one of several stages, as those of a small student behind a large
/// teacher may: no update of it is late then, so that an asynchronous schedule gives what one process gives. ""
/// elsewhere.
std::string note_of_frozen_stages(const Model& model, const std::vector<Stage>& stages);

}  // namespace funicular::parallel
