#pragma once
// Turns tensors into the typed pointers that kernels take, with a check of their type.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "funicular/base/error.h"
#include "funicular/nn/kernels.h"

namespace funicular::nn {

/// Names a stretch of time for profilers; costs nothing where none listens.
#define FUNICULAR_EVENT(name) RECORD_FUNCTION("funicular::" name, c10::ArrayRef<const c10::IValue>{})

/// Calls body with a value of the tensor's storage type.
template <class Body>
void dispatch(const at::Tensor& tensor, const char* what, Body body) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return body(float{});
    case at::kDouble:
      return body(double{});
    case at::kBFloat16:
      return body(BFloat16{});
    case at::kHalf:
      return body(Half{});
    default:
      throw InputError("nn", "{}: expected a floating-point type, found {}", what,
                       c10::toString(tensor.scalar_type()));
  }
}

/// The type of vectors and sums beside activations of this type.
inline at::ScalarType compute_type(const at::Tensor& activations) {
  return activations.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// The tensor's elements, null if it is undefined; throws unless S is their type.
template <class S>
S* data(const at::Tensor& tensor) {
  constexpr at::ScalarType type = std::is_same_v<S, double>     ? at::kDouble
                                  : std::is_same_v<S, float>    ? at::kFloat
                                  : std::is_same_v<S, BFloat16> ? at::kBFloat16
                                                                : at::kHalf;
  if (!tensor.defined()) return nullptr;
  if (tensor.scalar_type() != type)
    throw InputError("nn", "expected a tensor of type {}, found {}", c10::toString(type),
                     c10::toString(tensor.scalar_type()));
  return static_cast<S*>(tensor.data_ptr());
}

}  // namespace funicular::nn
