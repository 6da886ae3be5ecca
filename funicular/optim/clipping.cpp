#include "funicular/optim/clipping.h"

#include <cmath>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/blocks.h"
#include "funicular/optim/kernels.h"

namespace funicular::optim {

namespace {

/// `kernel(values, size)` over fixed blocks, added in their order.
template <class T>
double square_sum(const at::Tensor& flat, double (*kernel)(const T*, int64_t)) {
  const T* values = static_cast<const T*>(flat.const_data_ptr());
  std::vector<double> parts(static_cast<size_t>((flat.numel() + kBlock - 1) / kBlock));
  for_each_block(0, flat.numel(), [&](int64_t block, int64_t begin, int64_t end) {
    parts[static_cast<size_t>(block)] = kernel(values + begin, end - begin);
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

double square_sum(const at::Tensor& flat) {
  switch (flat.scalar_type()) {
    case at::kFloat:
      return square_sum<float>(flat, kernels<float>().square_sum);
    case at::kDouble:
      return square_sum<double>(flat, kernels<double>().square_sum);
    case at::kBFloat16:
      return square_sum<BFloat16>(flat, half_kernels<BFloat16>().square_sum);
    case at::kHalf:
      return square_sum<Half>(flat, half_kernels<Half>().square_sum);
    default:
      throw InputError("clipping", "expected gradients of a floating-point type, found {}",
                       c10::toString(flat.scalar_type()));
  }
}

}  // namespace

double global_norm(const at::Tensor& flat) {
  return std::sqrt(square_sum(flat));
}

double global_norm(const FlatParameters& parameters) {
  return std::sqrt(square_sum(parameters.gradient(ParameterGroup::decay)) +
                   square_sum(parameters.gradient(ParameterGroup::no_decay)));
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::fmin(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace funicular::optim
