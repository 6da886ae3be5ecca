#pragma once
// Weights' gradients that are made later than the gradients of their inputs: Qi, Wan, Huang, Lin, "Zero Bubble Pipeline
// Parallelism", ICLR 2024, section 2.

#include <functional>
#include <vector>

namespace funicular {

/// While it lives, backward passes in this thread put their products of matrices' gradients off (nn/functional.cpp): nobody
/// waits for these, as the stage before waits for the gradient of the input. What a module of a user's computes, and
/// gradients of vectors and tables, are made at once.
class DeferredGradients {
 public:
  DeferredGradients();
  ~DeferredGradients();
  DeferredGradients(const DeferredGradients&) = delete;
  DeferredGradients& operator=(const DeferredGradients&) = delete;

  /// This thread's, the last made; null: none.
  static DeferredGradients* current();

  /// `product` adds to a weight's gradient; it holds what it needs for that.
  void add(std::function<void()> product) { products_.push_back(std::move(product)); }
  /// All that were added, to be called in this order, once, without another object of this class.
  std::vector<std::function<void()>> take() { return std::move(products_); }

 private:
  std::vector<std::function<void()>> products_;
  DeferredGradients* const outer_;
};

}  // namespace funicular
