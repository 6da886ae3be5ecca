#include "funicular/nn/quantized.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/nn/kernels.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

constexpr int64_t kHeader = 64;  // bytes: outputs and inputs, then the alignment of what follows

int64_t panels_of(int64_t outputs) {
  return (outputs + kQuantizedPanel - 1) / kQuantizedPanel;
}
int64_t groups_of(int64_t inputs) {
  return (inputs + 3) / 4;
}

/// Bytes per output beside its values: both shifts and the scale.
constexpr int64_t kBeside = 12;

/// The layout of the bytes: header; shifts, turned shifts and scales [panels * kQuantizedPanel]; values.
QuantizedMatrix view_of(const at::Tensor& weight) {
  const auto* const bytes = weight.const_data_ptr<uint8_t>();
  QuantizedMatrix matrix;
  std::memcpy(&matrix.outputs, bytes, sizeof matrix.outputs);
  std::memcpy(&matrix.inputs, bytes + sizeof matrix.outputs, sizeof matrix.inputs);
  const int64_t padded = panels_of(matrix.outputs) * kQuantizedPanel;
  matrix.shifts = reinterpret_cast<const int32_t*>(bytes + kHeader);
  matrix.turned_shifts = matrix.shifts + padded;
  matrix.scales = reinterpret_cast<const float*>(bytes + kHeader + 8 * padded);
  matrix.values = reinterpret_cast<const int8_t*>(bytes + kHeader + kBeside * padded);
  return matrix;
}

/// One output channel: its scale, its shifts, and its values, four inputs side by side for each output of the
/// panel.
void quantize_channel(const float* row, const QuantizedMatrix& matrix, int64_t output) {
  float largest = 0;
  for (int64_t i = 0; i < matrix.inputs; ++i) {
    if (!std::isfinite(row[i]))
      throw InputError("quantize", "expected finite weights, found {} in row {}, column {}", row[i], output,
                       i);
    largest = std::max(largest, std::fabs(row[i]));
  }
  const float inverse = largest > 0 ? 127 / largest : 0;
  const int64_t groups = groups_of(matrix.inputs), panel = output / kQuantizedPanel,
                lane = output % kQuantizedPanel;
  auto* const values = const_cast<int8_t*>(matrix.values) + panel * groups * kQuantizedPanel * 4 + lane * 4;
  int32_t sum = 0, negative = 0;
  for (int64_t i = 0; i < matrix.inputs; ++i) {
    const auto value = static_cast<int8_t>(std::lrint(row[i] * inverse));
    values[i / 4 * kQuantizedPanel * 4 + i % 4] = value;
    sum += value;
    negative += std::min<int32_t>(value, 0);
  }
  const_cast<float*>(matrix.scales)[output] = largest / 127;
  const_cast<int32_t*>(matrix.shifts)[output] = 128 * sum;
  const_cast<int32_t*>(matrix.turned_shifts)[output] = negative;
}

template <class Body>
void dispatch_activation(const at::Tensor& x, Body body) {
  if (x.scalar_type() == at::kFloat) return body(float{});
  if (x.scalar_type() == at::kBFloat16) return body(BFloat16{});
  if (x.scalar_type() == at::kHalf) return body(Half{});
  throw InputError("quantized product", "expected activations of Float, BFloat16 or Half, found {}",
                   c10::toString(x.scalar_type()));
}

// Rows, at most, whose bytes stay in the second-level cache for all panels of a weight.
constexpr int64_t kBlock = 96;

/// A thread's own memory: quantised activations of a block of rows, and the activations between two products.
struct QuantizedRows {
  at::Tensor bytes, inner;
  float scales[kBlock];
};

/// Calls body(first row, how many, scratch) for blocks of rows.
template <class Body>
void for_each_block(int64_t rows, Body body) {
  // Few rows are cut into blocks of whole tiles, enough for all threads.
  const int64_t threads = at::get_num_threads(), share = (rows + threads - 1) / threads;
  const int64_t size = std::clamp<int64_t>((share + 31) / 32 * 32, 32, kBlock);
  std::vector<QuantizedRows> scratch(static_cast<size_t>(threads));
  for_each_item((rows + size - 1) / size, threads, [&](int64_t block, int64_t worker) {
    body(block * size, std::min(size, rows - block * size), scratch[static_cast<size_t>(worker)]);
  });
}

template <class S>
const S* const_rows(const at::Tensor& x, int64_t first) {
  return static_cast<const S*>(x.const_data_ptr()) + first * x.size(1);
}
template <class S>
S* mutable_rows(const at::Tensor& x, int64_t first) {
  return static_cast<S*>(x.data_ptr()) + first * x.size(1);
}

/// out [rows, O] = x [rows, I] * weight^T, of at most kBlock rows.
template <class S>
void multiply(const S* x, int64_t rows, const QuantizedMatrix& weight, QuantizedRows& scratch, S* out) {
  const int64_t bytes = kBlock * groups_of(weight.inputs) * 4;
  if (!scratch.bytes.defined() || scratch.bytes.numel() < bytes)
    scratch.bytes = at::empty({bytes}, at::kByte);
  kernels<S>().quantize_rows(0, rows, weight.inputs, x, scratch.bytes.data_ptr<uint8_t>(), scratch.scales);
  QuantizedArguments<S> a;
  a.end = rows;
  a.input = scratch.bytes.const_data_ptr<uint8_t>();
  a.input_scales = scratch.scales;
  a.weight = weight;
  a.output = out;
  kernels<S>().quantized_product(a);
}

/// Without gaps; throws InputError for what cannot be multiplied.
at::Tensor checked_rows(const at::Tensor& x, const QuantizedMatrix& weight) {
  if (at::GradMode::is_enabled() && x.requires_grad())
    throw InputError("quantized product", "quantised weights are for prediction: there are no gradients");
  if (x.size(1) != weight.inputs)
    throw InputError("quantized product", "expected rows of {} numbers, found {}", weight.inputs, x.size(1));
  return x.contiguous();
}

}  // namespace

at::Tensor quantize_weight(const at::Tensor& weight) {
  if (!weight.is_cpu())
    throw InputError("quantized product", "expected a weight on the CPU, found one on {}",
                     weight.device().str());
  const at::NoGradGuard no_gradient;
  const at::Tensor values = weight.detach().to(at::kFloat).contiguous();
  const int64_t outputs = values.size(0), inputs = values.size(1),
                padded = panels_of(outputs) * kQuantizedPanel;
  const at::Tensor result =
      at::zeros({kHeader + kBeside * padded + padded * groups_of(inputs) * 4}, at::kByte);
  std::memcpy(result.data_ptr<uint8_t>(), &outputs, sizeof outputs);
  std::memcpy(result.data_ptr<uint8_t>() + sizeof outputs, &inputs, sizeof inputs);
  const QuantizedMatrix matrix = view_of(result);
  for_each_range(0, outputs, 16, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      quantize_channel(values.const_data_ptr<float>() + o * inputs, matrix, o);
  });
  return result;
}

bool is_quantized(const at::Tensor& weight) {
  return weight.scalar_type() == at::kByte;
}

at::Tensor quantized_linear(const at::Tensor& x, const at::Tensor& weight) {
  RECORD_FUNCTION("funicular::quantized_linear", c10::ArrayRef<const c10::IValue>{});
  const QuantizedMatrix matrix = view_of(weight);
  const at::Tensor rows = checked_rows(x, matrix);
  const at::Tensor out = at::empty({rows.size(0), matrix.outputs}, rows.options());
  dispatch_activation(rows, [&](auto zero) {
    using S = decltype(zero);
    for_each_block(rows.size(0), [&](int64_t first, int64_t count, QuantizedRows& scratch) {
      multiply(const_rows<S>(rows, first), count, matrix, scratch, mutable_rows<S>(out, first));
    });
  });
  return out;
}

at::Tensor quantized_feed_forward(const at::Tensor& x, const at::Tensor& up, const at::Tensor& bias,
                                  const at::Tensor& down, Activation activation) {
  RECORD_FUNCTION("funicular::quantized_feed_forward", c10::ArrayRef<const c10::IValue>{});
  const QuantizedMatrix first_matrix = view_of(up), second_matrix = view_of(down);
  const at::Tensor rows = checked_rows(x, first_matrix);
  const at::Tensor out = at::empty({rows.size(0), second_matrix.outputs}, rows.options());
  dispatch_activation(rows, [&](auto zero) {
    using S = decltype(zero);
    for_each_block(rows.size(0), [&](int64_t first, int64_t count, QuantizedRows& scratch) {
      if (!scratch.inner.defined()) scratch.inner = at::empty({kBlock, first_matrix.outputs}, rows.options());
      multiply(const_rows<S>(rows, first), count, first_matrix, scratch, mutable_rows<S>(scratch.inner, 0));
      ActivationArguments<S> a;
      a.activation = activation;
      a.end = count;
      a.width = first_matrix.outputs;
      a.input = a.output = mutable_rows<S>(scratch.inner, 0);
      a.bias = bias.const_data_ptr<float>();
      kernels<S>().activation_forward(a);
      multiply(const_rows<S>(scratch.inner, 0), count, second_matrix, scratch, mutable_rows<S>(out, first));
    });
  });
  return out;
}

void quantize_layers(Model& model) {
  for (const Segment& segment : model.segments) {
    if (!segment.name.starts_with("layer.")) continue;
    for (Parameter* const parameter : segment.parameters) {
      if (parameter->kind != ParameterKind::matrix || parameter->master.dim() != 2) continue;
      if (is_quantized(parameter->compute)) continue;  // layers may share it
      parameter->compute = quantize_weight(parameter->master);
      parameter->master = parameter->compute;
    }
  }
}

}  // namespace funicular::nn
