#pragma once
// Sums of squares of gradients, taken while these are written, so that the norm of all gradients need not
// read them from memory again.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <unordered_map>

namespace funicular {

/// While it lives, products of weights' gradients in this thread leave their sums of squares here
/// (nn/functional.cpp). Code that writes to a gradient without LibTorch's operations must raise the tensor's version,
/// as these operations do.
class GradientSquares {
 public:
  GradientSquares();
  ~GradientSquares();
  GradientSquares(const GradientSquares&) = delete;
  GradientSquares& operator=(const GradientSquares&) = delete;

  /// This thread's, the last made; null: none.
  static GradientSquares* current();

  void set(const at::Tensor& gradient, double sum);
  /// The sum of a tensor's squares; nothing if it was not taken, or if the tensor was written to since.
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
