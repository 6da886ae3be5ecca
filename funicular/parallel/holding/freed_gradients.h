#pragma once
// Gradients of matrices that come and go: the backward pass makes them, as activations go, and between an update and
// the next backward pass they take no memory.

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
  /// After the last backward pass: what autograd has made becomes Parameter::gradient, dense (or, if it may be,
  /// sparse), of the type that is computed with, zero where autograd made none.
  void collect() const;

 private:
  std::vector<Parameter*> matrices_;
  bool rows_;
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;  ///< on the leaves
};

}  // namespace funicular::parallel
