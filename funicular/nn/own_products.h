#pragma once
// Shared by the matrix products that this library computes itself: which number types they take, and how they see a
// tensor as a matrix.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "funicular/nn/kernels.h"
#include "funicular/nn/matmul.h"
#include "funicular/nn/tiled.h"

namespace funicular::nn {

inline int64_t ceiling(int64_t n, int64_t step) {
  return (n + step - 1) / step;
}

template <class T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

/// Returns body(S{}) for a type that has products of our own, else false.
template <class Body>
bool with_own_products(at::ScalarType type, Body body) {
  const auto call = [&](auto zero) { return kernels<decltype(zero)>().large.matmul && body(zero); };
  if (type == at::kBFloat16) return call(BFloat16{});
  if (type == at::kFloat) return call(float{});
  if (type == at::kDouble) return call(double{});
  if (type == at::kHalf) return call(Half{});
  return false;
}

/// A matrix as products find it.
struct Operand {
  const at::Tensor& values;
  int64_t rows, columns, stride;
  bool tiled;

  Operand(const at::Tensor& x)
      : values(x), rows(x.size(0)), columns(x.size(1)), stride(x.stride(0)), tiled(false) {}
  Operand(const Tiled& x)
      : values(x.squares), rows(x.rows), columns(x.columns()), stride(columns), tiled(true) {}
  bool usable() const { return values.is_cpu() && (tiled || values.stride(1) == 1); }
};

/// Whether LibTorch multiplies it faster as float32.
inline bool better_widened(const at::Tensor& x) {
  return x.is_cpu() && products_are_widened(x.scalar_type());
}

}  // namespace funicular::nn
