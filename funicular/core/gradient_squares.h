#pragma once
// Sums of squares of gradients, taken while these are written, so that the norm of all gradients need not
// read them from memory again.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace funicular {

/// While it lives, products of weights' gradients in this thread leave their sums here (nn/functional.cpp).
/// Whoever writes to a gradient past LibTorch, whose operations count a tensor's versions, counts one too.
class GradientSquares {
 public:
  GradientSquares();
  ~GradientSquares();
  GradientSquares(const GradientSquares&) = delete;
  GradientSquares& operator=(const GradientSquares&) = delete;

  /// This thread's, the last made; null: none.
  static GradientSquares* current();

  void set(const at::Tensor& gradient, double sum);
  /// The sum of a tensor's squares; nothing where it was not taken, or the tensor was written to since.
  std::optional<double> of(const at::Tensor& gradient) const;

 private:
  struct Known {
    at::Tensor gradient;  ///< held, so that no other takes its place
    int64_t version = 0;
    double sum = 0;
  };
  std::unordered_map<const void*, Known> known_;
  GradientSquares* const outer_;
};

}  // namespace funicular
