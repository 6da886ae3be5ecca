#pragma once
// The flat gradients of a rank's weights: when they are zeroed and freed, and where autograd adds to them.

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

  /// Allocates the buffer of a kind, zeroed. `has_other_pieces`: the buffer includes other ranks' pieces, in which
  /// reductions leave arbitrary values.
  void allocate(ParameterKind kind, int64_t size, const at::TensorOptions& options, bool has_other_pieces);
  /// From now on, gradients of matrices are freed after each update (holding/freed_gradients.h). `rows`: they may be
  /// sparse.
  void free_matrices(bool rows);
  /// The flat buffer of a kind; undefined if its gradients are freed.
  const at::Tensor& of(ParameterKind kind) const { return buffers_[static_cast<size_t>(kind)].gradients; }

  /// Called before the first backward pass of a step. Zeroes the gradients or, if they are to be freed, frees them.
  /// Points .grad of each weight to Parameter::gradient, even if a module's own code has changed .grad.
  void start();
  /// Like start(), but also zeroes gradients that are known to be zero.
  void zero();
  /// Called after an update that has zeroed this rank's own gradients. Frees gradients that are to be freed.
  void note_update();
  /// Called after the last backward pass of a step: sets Parameter::gradient of matrices whose gradients are freed.
  void collect();
  /// Returns PassOptions::row_gradients for forward passes.
  bool may_be_rows() const { return freed_ && freed_->row_gradients(); }
  /// Drops the buffers, for a caller that keeps the gradients elsewhere.
  void let_go();
  /// Frees gradients that are to be freed, and sets .grad of each weight to Parameter::gradient.
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
