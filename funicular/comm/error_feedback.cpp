#include "funicular/comm/error_feedback.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "funicular/base/error.h"
#include "funicular/runtime/parallel_loop.h"

namespace funicular::comm {

namespace {

constexpr int64_t kGrain = 1 << 14;

template <class Value, class Short>
void round_all(const Value* gradient, Value* residual, Short* out, int64_t size, Value largest) {
  parallel_loop(0, size, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Value whole = gradient[i] + residual[i];
      // Keeps values that are not finite: the step must fail as it would without rounding.
      const Value held = std::isfinite(whole) ? std::clamp(whole, -largest, largest) : whole;
      out[i] = static_cast<Short>(static_cast<float>(held));
      const Value lost = whole - static_cast<Value>(static_cast<float>(out[i]));
      residual[i] = std::isfinite(lost) ? lost : Value(0);
    }
  });
}

template <class Value>
void round_to(at::ScalarType type, const at::Tensor& gradient, const at::Tensor& residual,
              const at::Tensor& out, double largest) {
  const auto call = [&]<class Short>(Short*) {
    round_all(gradient.const_data_ptr<Value>(), residual.mutable_data_ptr<Value>(),
              out.mutable_data_ptr<Short>(), gradient.numel(), static_cast<Value>(largest));
  };
  type == at::kHalf ? call(static_cast<c10::Half*>(nullptr)) : call(static_cast<c10::BFloat16*>(nullptr));
}

/// The largest half of which `ranks` can be added up, in any order and rounded each time, below 65,520.
double largest_half(int ranks) {
  c10::Half value(static_cast<float>(65504.0 / ranks * (1 - ranks * 0x1p-11)));
  if (static_cast<float>(value) * ranks > 65504.0 * (1 - ranks * 0x1p-11)) --value.x;
  return static_cast<float>(value);
}

}  // namespace

ErrorFeedback::ErrorFeedback(int64_t elements, const at::TensorOptions& gradient, at::ScalarType type,
                             int ranks) {
  const auto wide = gradient.dtype().toScalarType();
  if ((wide != at::kFloat && wide != at::kDouble) || (type != at::kBFloat16 && type != at::kHalf))
    throw InputError("error feedback",
                     "expected gradients of float or double and a rounding to bfloat16 or half; found {} "
                     "and {}",
                     c10::toString(wide), c10::toString(type));
  residual_ = at::zeros({elements}, gradient);
  compressed_ = at::empty({elements}, gradient.dtype(type));
  largest_ = type == at::kHalf ? largest_half(ranks) : std::numeric_limits<float>::max() / (2.0 * ranks);
}

at::Tensor ErrorFeedback::compress(const at::Tensor& gradient, int64_t begin) {
  const int64_t size = gradient.numel();
  const at::Tensor out = compressed_.narrow(0, begin, size), residual = residual_.narrow(0, begin, size);
  const at::ScalarType type = compressed_.scalar_type();
  if (gradient.scalar_type() == at::kDouble)
    round_to<double>(type, gradient, residual, out, largest_);
  else
    round_to<float>(type, gradient, residual, out, largest_);
  return out;
}

}  // namespace funicular::comm
