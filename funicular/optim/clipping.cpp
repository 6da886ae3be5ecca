#include "funicular/optim/clipping.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/block_items.h"
#include "funicular/optim/device/passes.h"
#include "funicular/optim/kernels.h"
#include "funicular/optim/sparse_rows.h"
#include "funicular/runtime/device_kernels.h"

namespace funicular::optim {

namespace {

/// Sum of squares of the elements [begin, begin + size).
double square_sum(const at::Tensor& flat, int64_t begin, int64_t size) {
  const auto sum = [&](auto type, auto kernel) {
    return kernel(static_cast<const decltype(type)*>(flat.const_data_ptr()) + begin, size);
  };
  switch (flat.scalar_type()) {
    case at::kFloat:
      return sum(float{}, kernels<float>().square_sum);
    case at::kDouble:
      return sum(double{}, kernels<double>().square_sum);
    case at::kBFloat16:
      return sum(BFloat16{}, half_kernels<BFloat16>().square_sum);
    case at::kHalf:
      return sum(Half{}, half_kernels<Half>().square_sum);
    default:
      throw InputError("clipping", "expected gradients of a floating-point type, found {}",
                       c10::toString(flat.scalar_type()));
  }
}

/// Sum of squares of a block of a sparse gradient. The order of the additions is that of the dense gradient.
double square_sum(const RowGradient& rows, at::ScalarType type, int64_t begin, int64_t size) {
  const auto sum = [&](auto zero, auto kernel) {
    using S = decltype(zero);
    alignas(64) S dense[FlatLayout::kBlock];
    const auto copy = [](const S* in, S* out, int64_t n) { std::copy_n(in, n, out); };
    return rows.gather<S>(begin, size, dense, copy) ? kernel(dense, size) : 0.0;
  };
  switch (type) {
    case at::kDouble:
      return sum(double{}, kernels<double>().square_sum);
    case at::kBFloat16:
      return sum(BFloat16{}, half_kernels<BFloat16>().square_sum);
    case at::kHalf:
      return sum(Half{}, half_kernels<Half>().square_sum);
    default:
      return sum(float{}, kernels<float>().square_sum);
  }
}

/// For each layer: the sum of squares of its parameter's gradient, if it is known.
std::vector<std::optional<double>> sums_of_layers(const UpdateTarget& target, const GradientSquares* known) {
  const auto& layers = target.layout->layers();
  std::vector<std::optional<double>> sums(layers.size());
  for (size_t i = 0; known && i < layers.size(); ++i)
    if (target.frees_gradients(layers[i])) sums[i] = known->of(target.gradient(layers[i]));
  return sums;
}

at::Tensor square_sum_on_device(const std::vector<at::Tensor>& flats) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& flat : flats) sums.push_back(device::square_sums(flat));
  return at::cat(sums).sum();
}

}  // namespace

double global_norm(const at::Tensor& flat) {
  if (funicular::device::takes(flat)) return std::sqrt(square_sum_on_device({flat}).item<double>());
  std::vector<double> parts(
      static_cast<size_t>((flat.numel() + FlatLayout::kBlock - 1) / FlatLayout::kBlock));
  for_each_block(flat.numel(), [&](int64_t block, int64_t begin, int64_t end) {
    parts[static_cast<size_t>(block)] = square_sum(flat, begin, end - begin);
  });
  double total = 0;
  for (const double part : parts) total += part;
  return std::sqrt(total);
}

double global_norm(const UpdateTarget& target, const GradientSquares* known) {
  if (funicular::device::takes(target.matrix_master)) return device_norm(target).item<double>();
  const at::Tensor parts = at::zeros({static_cast<int64_t>(target.layout->blocks().size())}, at::kDouble);
  double* const sums = parts.data_ptr<double>();
  const auto count = static_cast<int64_t>(target.blocks.size());
  const std::map<int64_t, RowGradient> sparse = row_gradients(target);
  const std::vector<std::optional<double>> taken = sums_of_layers(target, known);
  for_each_target_block(count, [&](int64_t i) {
    const UpdateTarget::Block& block = target.blocks[static_cast<size_t>(i)];
    const int64_t layer = target.layout->blocks()[static_cast<size_t>(block.number)].layer;
    if (const auto& sum = taken[static_cast<size_t>(layer)]) {
      if (block.gradient == 0) sums[block.number] = *sum;  // the whole parameter's sum
      return;
    }
    const at::Tensor& gradient = target.gradient(target.layer(block));
    const auto rows = sparse.find(layer);
    sums[block.number] = rows != sparse.end()
                             ? square_sum(rows->second, gradient.scalar_type(), block.gradient, block.size)
                             : square_sum(gradient, block.gradient, block.size);
  });
  if (target.add_over_ranks) target.add_over_ranks(parts);
  double total = 0;
  for (int64_t i = 0; i < parts.numel(); ++i) total += sums[i];
  return std::sqrt(total);
}

at::Tensor device_norm(const UpdateTarget& target) {
  if (target.add_over_ranks) {
    const at::Tensor sums = device::square_sums(target);
    target.add_over_ranks(sums);
    return sums.sum().sqrt();
  }
  return square_sum_on_device({target.matrix_gradient, target.vector_gradient}).sqrt();
}

at::Tensor device_clip_factor(const at::Tensor& norm, double max_norm) {
  return max_norm > 0 ? (max_norm / (norm + 1e-6)).clamp_max(1) : at::ones_like(norm);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 ? std::fmin(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace funicular::optim
