#include "funicular/nn/attention_pattern.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <vector>

#include "funicular/runtime/work_items.h"

namespace funicular::nn {

at::Tensor rotations(int64_t positions, int64_t head_size, double base, const at::TensorOptions& options) {
  const at::Tensor table = at::empty({positions, head_size}, at::kDouble);
  const int64_t half = head_size / 2;
  auto* const out = table.mutable_data_ptr<double>();
  std::vector<float> frequencies;
  for (int64_t i = 0; i < half; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
    frequencies.push_back(1.0F / static_cast<float>(std::pow(base, static_cast<double>(exponent))));
  }
  for_each_range(0, positions, 64, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<float>(position) * frequencies[static_cast<size_t>(i)];
        out[position * head_size + i] = std::cos(angle);
        out[position * head_size + half + i] = std::sin(angle);
      }
  });
  return table.to(options);
}

at::Tensor turned(const at::Tensor& x, const at::Tensor& rotations, bool back) {
  const at::Tensor wide = x.to(rotations.scalar_type());
  const int64_t half = rotations.size(1) / 2;
  const at::Tensor cosines = rotations.narrow(1, 0, half).unsqueeze(1),
                   sines = rotations.narrow(1, half, half).unsqueeze(1);
  const at::Tensor first = wide.narrow(2, 0, half), second = wide.narrow(2, half, half);
  if (back)
    return at::cat({first * cosines + second * sines, second * cosines - first * sines}, 2)
        .to(x.scalar_type());
  return at::cat({first * cosines - second * sines, second * cosines + first * sines}, 2).to(x.scalar_type());
}

}  // namespace funicular::nn
