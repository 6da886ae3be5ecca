#pragma once
// A model cut into stages for a pipeline: the segments of each stage, and the tensors that pass from one to the next.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

/// A tensor that earlier stages make for this stage or a later one.
struct Crossing {
  const Port* port = nullptr;  ///< of the segment that makes it
  bool learns = false;         ///< floating-point, and weights before it train, so its gradient is sent back

  const std::string& name() const { return port->name; }
  std::vector<int64_t> shape(const MicroBatch& batch) const { return port->shape(batch); }
};

/// Segments [begin, end).
struct Stage {
  size_t begin = 0, end = 0;
  std::vector<Crossing> inputs;  ///< by name; the stage before sends them
};

/// Throws InputError if the model has fewer segments than stages.
void require_segments(const Model& model, size_t stages);

/// Returns the first segment of each of `stages` stages. The largest stage has as few weights as possible (linear
/// partition by dynamic programming). Among equal solutions, the one whose first stages are largest is taken. A weight
/// counts in each segment that uses it, since each multiplies by it: the layers of an ALBERT share weights and cost
/// alike. A segment that reads only integers looks up tables, which costs little, so its weights do not count. Its
/// tables count nowhere: a tied decoder reads few tokens. Throws InputError if there are fewer segments than stages.
std::vector<size_t> balanced_begins(const Model& model, int stages);

/// Whether a stage may begin with this segment: all tensors that cross the border must have declared shapes.
bool can_cut(const Model& model, size_t segment);

/// Returns the stages that begin at these segments, the first of which must be 0. The model must outlive them. Throws
/// InputError for numbers that do not ascend or are beyond the segments. Also throws it for a cut across an activation
/// whose segment declares no shape.
std::vector<Stage> cut_stages(const Model& model, const std::vector<size_t>& begins);

/// Returns a warning if only one of several stages has weights that learn, as with a small student behind a large
/// teacher. No update is late then, so an asynchronous schedule gives the results of one process. Returns "" otherwise.
std::string note_of_frozen_stages(const Model& model, const std::vector<Stage>& stages);

}  // namespace funicular::parallel
