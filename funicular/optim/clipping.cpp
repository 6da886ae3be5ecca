#include "funicular/optim/clipping.h"

#include <cmath>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/blocks.h"
#include "funicular/optim/kernels.h"

namespace funicular::optim {

namespace {

template <class T>
double square_sum(const at::Tensor& flat) {
  const T* values = flat.const_data_ptr<T>();
  std::vector<double> parts(static_cast<size_t>((flat.numel() + kBlock - 1) / kBlock));
  for_each_block(0, flat.numel(), [&](int64_t block, int64_t begin, int64_t end) {
    parts[static_cast<size_t>(block)] = kernels<T>().square_sum(values + begin, end - begin);
  });
  double total = 0;
  for (const double part : parts) total += part;
  return total;
}

}  // namespace

double global_norm(const at::Tensor& flat) {
  switch (flat.scalar_type()) {
    case at::kFloat:
      return std::sqrt(square_sum<float>(flat));
    case at::kDouble:
      return std::sqrt(square_sum<double>(flat));
    default:
      throw InputError("clipping", "expected gradients of type Float or Double, found {}",
                       c10::toString(flat.scalar_type()));
  }
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::fmin(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace funicular::optim
