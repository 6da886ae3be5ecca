#pragma once
// Gradients of matrices that exist only from the backward pass to the update. The backward pass allocates them while it
// frees activations. Between an update and the next backward pass they take no memory.

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "funicular/core/model.h"

namespace funicular::parallel {

class FreedGradients {
 public:
  /// `rows`: gradients may be sparse.
  FreedGradients(std::vector<Parameter*> matrices, bool rows);
  ~FreedGradients();
  FreedGradients(const FreedGradients&) = delete;
  FreedGradients& operator=(const FreedGradients&) = delete;

  bool row_gradients() const { return rows_; }
  void free() const;
  /// Called after the last backward pass: Parameter::gradient becomes what autograd has made, in the compute type. It
  /// is dense, or sparse if that is allowed, and zero if autograd made none.
  void collect() const;

 private:
  std::vector<Parameter*> matrices_;
  bool rows_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;  ///< on the leaves
};

}  // namespace funicular::parallel
