#pragma once
// One storage for all trainable parameters and one for their gradients, shared by optimisers, reductions and
// sharding; or no storage for gradients, which come and go.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "funicular/core/flat_layout.h"
#include "funicular/core/model.h"

namespace funicular {

/// Mixed precision (Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.1): what the
/// matrices (ParameterKind::matrix) are multiplied in, and what their gradients are collected in. Vectors
/// (biases, normalisation) stay in the master's type.
struct MatrixTypes {
  std::optional<at::ScalarType> compute{};   ///< kBFloat16 or kHalf; none: the master's type
  std::optional<at::ScalarType> gradient{};  ///< none: the master's type, right for sums over micro-batches
};

/// Makes the compute tensors of all frozen matrices copies of that type.
void convert_frozen_matrices(Model& model, at::ScalarType type);

/// Puts the trainable parameters of a model into flat buffers (core/flat_layout.h). Afterwards every
/// trainable Parameter's master, compute and gradient are views into the buffers, and autograd accumulates
/// into them in place. Where gradients are freed, those of matrices are not: the backward pass makes them, as
/// activations go, and between an update and the next backward pass they take no memory.
class FlatParameters {
 public:
  using Entry = FlatLayout::Entry;

  /// Throws as FlatLayout does. With `types.compute` the matrices' compute tensors, frozen ones included,
  /// become copies of that type: the trainable ones views into shadow(). Gradients that are freed must be of
  /// the type that is computed with, for that is what autograd makes; throws InputError otherwise. The model
  /// must outlive this.
  /// With `row_gradients` freed gradients may be sparse, if the model makes such ones.
  explicit FlatParameters(Model& model, MatrixTypes types = {}, bool free_gradients = false,
                          bool row_gradients = false);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  const FlatLayout& layout() const { return *layout_; }
  const std::vector<Entry>& entries() const { return layout_->entries(); }
  const at::Tensor& master() const { return master_; }  ///< [N] flat
  /// [matrices_end] flat, what the matrices compute with; undefined without mixed precision. Whoever changes
  /// master keeps it up to date: optimisers in the same pass, others by Parameter::compute.
  const at::Tensor& shadow() const { return shadow_; }
  /// Flat gradients of a kind: [matrices_end] or [N - matrices_end], the latter in the master's type. That of the
  /// matrices is undefined where gradients are freed.
  const at::Tensor& gradient(ParameterKind kind) const {
    return kind == ParameterKind::matrix ? matrix_gradient_ : vector_gradient_;
  }
  int64_t size() const { return layout_->size(); }
  /// Elements [0, matrices_end) are of ParameterKind::matrix, the rest vectors.
  int64_t matrices_end() const { return layout_->matrices_end(); }

  /// All blocks, for an optimiser; state tensors are laid out as the parameters are.
  std::shared_ptr<UpdateTarget> target() const;

  /// Sets gradients to zero, or frees them.
  void zero_gradient();
  /// Puts the gradients' views back where a module's own code dropped or replaced .grad (zero_grad); frees
  /// those that are to be freed.
  void point_gradients();
  /// What forward passes are to be told (PassOptions::row_gradients): whether gradients may be sparse.
  bool row_gradients() const { return row_gradients_; }
  /// After an update; does nothing where none are to be freed.
  void free_gradients();
  /// After the last backward pass of a step: gradients that are to be freed become Parameter::gradient, dense
  /// (or, if they may be, sparse) and of the type that they should have, zero where autograd made none.
  void collect_gradients();
  /// The part of a flat tensor of this layout that holds `entry`, in the parameter's shape.
  at::Tensor view(const at::Tensor& flat, const Entry& entry) const;
  /// The part of the flat gradients that holds `entry`, in the parameter's shape.
  at::Tensor gradient_view(const Entry& entry) const;

 private:
  void point_into_buffers(const Entry& entry);
  bool frees_gradient(const Entry& entry) const {
    return frees_ && entry.parameter->kind == ParameterKind::matrix;
  }

  std::shared_ptr<const FlatLayout> layout_;
  bool frees_;
  bool row_gradients_ = false;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;  ///< on the leaves whose gradients are freed
  at::Tensor master_, shadow_, matrix_gradient_, vector_gradient_;
};

}  // namespace funicular
