#pragma once
// The gradients of a rank's weights, flat: when they are zeroed, freed, and what autograd adds to.

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <vector>

#include "funicular/core/flat_layout.h"
#include "funicular/parallel/holding/freed_gradients.h"
#include "funicular/parallel/holding/weight_unit.h"

namespace funicular::parallel {

class HeldGradients {
 public:
  /// `units` must outlive it. `updates`: this rank updates these weights.
  HeldGradients(const std::vector<WeightUnit>& units, bool updates) : units_(&units), updates_(updates) {}

  /// Makes the buffer of a kind, of zeros. `has_other_pieces`: reductions leave other things in the pieces of other
  /// ranks.
  void allocate(ParameterKind kind, int64_t size, const at::TensorOptions& options, bool has_other_pieces);
  /// From now on gradients of matrices come and go (holding/freed_gradients.h). `rows`: they may be sparse.
  void free_matrices(bool rows);
  /// Undefined if they are freed.
  const at::Tensor& of(ParameterKind kind) const { return buffers_[static_cast<size_t>(kind)].gradients; }

  /// Before the first backward pass of a step: gradients are zero, or gone where they are freed; .grad of each weight
  /// is Parameter::gradient, whatever a module's own code has made of it.
  void start();
  /// As start(), and zeroes gradients that are zero already, too.
  void zero();
  /// After an update that has left own gradients zero: those that are freed go.
  void note_update();
  /// After the last backward pass of a step: gradients that are to be freed become Parameter::gradient.
  void collect();
  /// Returns PassOptions::row_gradients for forward passes.
  bool may_be_rows() const { return freed_ && freed_->row_gradients(); }
  /// For whoever keeps the gradients elsewhere: their buffers go.
  void let_go();
  /// .grad of each weight becomes Parameter::gradient.
  void point();

 private:
  struct Buffer {
    at::Tensor gradients;
    bool has_other_pieces = false, is_zero = true;
  };
  const std::vector<WeightUnit>* units_;
  bool updates_;
  std::array<Buffer, 2> buffers_;  ///< by ParameterKind
  std::optional<FreedGradients> freed_;
};

}  // namespace funicular::parallel
