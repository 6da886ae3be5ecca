#include "funicular/bench/floor.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "funicular/base/clock.h"

namespace funicular::bench {

namespace {

/// Waits until a GPU has computed `result`.
void wait_for(const at::Tensor& result) {
  if (!result.is_cpu())
    c10::impl::VirtualGuardImpl(result.device().type()).synchronizeDevice(result.get_device());
}

/// Returns the mean time of a product on a GPU, which runs all products without a gap. It takes ten times as many
/// products as on a processor, because the wait at the end counts, too.
double mean_time(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, int repetitions) {
  repetitions *= 10;
  at::mm_out(c, a, b);
  wait_for(c);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) at::mm_out(c, a, b);
  wait_for(c);
  return seconds_since(start) / repetitions;
}

/// Returns the seconds of a product after one that warms up: on a processor the best of `repetitions`, on a GPU the mean.
double best_time(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, int repetitions) {
  if (!c.is_cpu()) return mean_time(a, b, c, repetitions);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(c, a, b);
    const double seconds = seconds_since(start);
    if (i > 0) best = std::min(best, seconds);
  }
  return best;
}

/// Returns the best time over the four layouts of the operands.
double best_layout(int64_t m, int64_t n, int64_t k, at::ScalarType type, int repetitions,
                   const at::Device& device) {
  const auto made = at::TensorOptions().device(device);
  const at::Tensor a = at::randn({m, k}, made).to(type), b = at::randn({k, n}, made).to(type);
  at::Tensor c = at::empty({m, n}, made.dtype(type));
  const at::Tensor a_transposed = a.t().contiguous().t(), b_transposed = b.t().contiguous().t();
  double best = std::numeric_limits<double>::infinity();
  for (const at::Tensor& left : {a, a_transposed})
    for (const at::Tensor& right : {b, b_transposed})
      best = std::min(best, best_time(left, right, c, repetitions));
  return best;
}

/// Returns float32 if LibTorch's products of a 16-bit `type` are slower, else `type`. They are slower on processors
/// without instructions for that type, where LibTorch multiplies some layouts number by number. Our own products
/// widen such operands in registers, so float32 is their limit, too.
at::ScalarType fastest(at::ScalarType type, const at::Device& device) {
  constexpr int64_t kSize = 256;
  constexpr int kTries = 3;
  if (c10::elementSize(type) >= c10::elementSize(at::kFloat) || !device.is_cpu()) return type;
  const double own = best_layout(kSize, kSize, kSize, type, kTries, device);
  return own > best_layout(kSize, kSize, kSize, at::kFloat, kTries, device) ? at::kFloat : type;
}

}  // namespace

std::vector<ProductShape> step_products(const BertShape& shape, int64_t tokens, int64_t masked) {
  std::vector<ProductShape> products;
  // y = x W^T, dx = dy W and dW = dy^T x: three products of the same operations.
  const auto add = [&](int64_t rows, int64_t in, int64_t out, int64_t count) {
    products.push_back({rows, out, in, count});
    products.push_back({rows, in, out, count});
    products.push_back({out, in, rows, count});
  };
  const auto add_after_attention = [&](int64_t rows, int64_t count) {
    add(rows, shape.hidden, shape.hidden, count);
    add(rows, shape.hidden, shape.gated ? 2 * shape.inner : shape.inner, count);
    add(rows, shape.inner, shape.hidden, count);
  };
  add(tokens, shape.hidden, 3 * shape.hidden, shape.layers);
  add_after_attention(tokens, shape.layers - 1);
  add_after_attention(masked, 1);  // of the last layer nothing else is read
  const int64_t embedding = shape.embedding > 0 ? shape.embedding : shape.hidden;
  if (embedding != shape.hidden) add(tokens, embedding, shape.hidden, 1);
  add(masked, shape.hidden, embedding, 1);
  add(masked, embedding, shape.vocabulary, 1);
  return products;
}

Floor measure_floor(const std::vector<ProductShape>& products, at::ScalarType type, int repetitions,
                    const at::Device& device) {
  const at::NoGradGuard no_gradient;
  Floor floor;
  type = fastest(type, device);
  for (const ProductShape& shape : products) {
    floor.seconds +=
        static_cast<double>(shape.count) * best_layout(shape.m, shape.n, shape.k, type, repetitions, device);
    floor.flops += shape.flops();
  }
  const int64_t square = device.is_cpu() ? 2048 : 8192;  // a GPU is not full before
  floor.square_flops_per_second = ProductShape{square, square, square, 1}.flops() /
                                  best_layout(square, square, square, type, repetitions, device);
  return floor;
}

}  // namespace funicular::bench
