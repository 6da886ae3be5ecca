#pragma once
// Weights' gradients that are made later than the gradients of their inputs: Qi, Wan, Huang, Lin, "Zero Bubble Pipeline
// Parallelism", ICLR 2024, section 2.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace funicular {

/// While it lives, backward passes that this thread starts defer the products of matrices' gradients (nn/functional.cpp).
/// Nobody waits for these products, but the pipeline stage before waits for the gradient of the input. Gradients that
/// users' modules compute, and gradients of vectors and tables, are computed at once.
class DeferredGradients {
 public:
  DeferredGradients();
  ~DeferredGradients();
  DeferredGradients(const DeferredGradients&) = delete;
  DeferredGradients& operator=(const DeferredGradients&) = delete;

  /// Returns that of the thread which started this backward pass, the last made; null: none.
  static DeferredGradients* current();

  struct Product {
    at::Tensor weight;
    std::function<void()> make;  ///< adds to the weight's gradient; holds what it needs for that
  };
  void add(at::Tensor weight, std::function<void()> make) {
    products_.push_back({std::move(weight), std::move(make)});
  }
  /// Whether a product for this weight was added.
  bool holds(const at::Tensor& weight) const {
    return std::any_of(products_.begin(), products_.end(),
                       [&](const Product& product) { return product.weight.is_same(weight); });
  }
  /// All that were added, to be made in this order, once, without another object of this class.
  std::vector<Product> take() { return std::move(products_); }

 private:
  std::vector<Product> products_;
  const std::shared_ptr<void> slot_;  ///< empties LibTorch's slot for this at the end
};

}  // namespace funicular
