#include "funicular/nn/quantized.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "funicular/base/error.h"
#include "funicular/nn/kernels.h"

namespace funicular::nn {

namespace {

constexpr int64_t kHeader = 64;  // bytes: outputs and inputs, then the alignment of what follows

int64_t panels_of(int64_t outputs) {
  return (outputs + kQuantizedPanel - 1) / kQuantizedPanel;
}
int64_t groups_of(int64_t inputs) {
  return (inputs + 3) / 4;
}

/// The layout of the bytes: header; shifts and scales [panels * kQuantizedPanel]; values.
QuantizedMatrix view_of(const at::Tensor& weight) {
  const auto* const bytes = weight.const_data_ptr<uint8_t>();
  QuantizedMatrix matrix;
  std::memcpy(&matrix.outputs, bytes, sizeof matrix.outputs);
  std::memcpy(&matrix.inputs, bytes + sizeof matrix.outputs, sizeof matrix.inputs);
  const int64_t padded = panels_of(matrix.outputs) * kQuantizedPanel;
  matrix.shifts = reinterpret_cast<const int32_t*>(bytes + kHeader);
  matrix.scales = reinterpret_cast<const float*>(bytes + kHeader + 4 * padded);
  matrix.values = reinterpret_cast<const int8_t*>(bytes + kHeader + 8 * padded);
  return matrix;
}

/// One output channel: its scale, its shift (128 times the sum of its values, which undoes the activations'
/// offset), and its values, four inputs side by side for each output of the panel.
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
  int32_t sum = 0;
  for (int64_t i = 0; i < matrix.inputs; ++i) {
    const auto value = static_cast<int8_t>(std::lrint(row[i] * inverse));
    values[i / 4 * kQuantizedPanel * 4 + i % 4] = value;
    sum += value;
  }
  const_cast<float*>(matrix.scales)[output] = largest / 127;
  const_cast<int32_t*>(matrix.shifts)[output] = 128 * sum;
}

template <class Body>
void dispatch_activation(const at::Tensor& x, Body body) {
  if (x.scalar_type() == at::kFloat) return body(float{});
  if (x.scalar_type() == at::kBFloat16) return body(BFloat16{});
  if (x.scalar_type() == at::kHalf) return body(Half{});
  throw InputError("quantized product", "expected activations of Float, BFloat16 or Half, found {}",
                   c10::toString(x.scalar_type()));
}

}  // namespace

at::Tensor quantize_weight(const at::Tensor& weight) {
  const at::NoGradGuard no_gradient;
  const at::Tensor values = weight.detach().to(at::kFloat).contiguous();
  const int64_t outputs = values.size(0), inputs = values.size(1),
                padded = panels_of(outputs) * kQuantizedPanel;
  const at::Tensor result = at::zeros({kHeader + 8 * padded + padded * groups_of(inputs) * 4}, at::kByte);
  std::memcpy(result.data_ptr<uint8_t>(), &outputs, sizeof outputs);
  std::memcpy(result.data_ptr<uint8_t>() + sizeof outputs, &inputs, sizeof inputs);
  const QuantizedMatrix matrix = view_of(result);
  at::parallel_for(0, outputs, 16, [&](int64_t begin, int64_t end) {
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
  if (at::GradMode::is_enabled() && x.requires_grad())
    throw InputError("quantized product", "quantised weights are for prediction: there are no gradients");
  const QuantizedMatrix matrix = view_of(weight);
  const at::Tensor rows = x.contiguous();
  const int64_t count = rows.size(0);
  if (rows.size(1) != matrix.inputs)
    throw InputError("quantized product", "expected rows of {} numbers, found {}", matrix.inputs,
                     rows.size(1));
  const at::Tensor bytes = at::empty({count, groups_of(matrix.inputs) * 4}, at::kByte);
  const at::Tensor scales = at::empty({count}, at::kFloat),
                   out = at::empty({count, matrix.outputs}, rows.options());
  dispatch_activation(rows, [&](auto zero) {
    using S = decltype(zero);
    constexpr int64_t kBlock = 48;  // rows: their bytes stay in the cache for all panels of the weight
    at::parallel_for(0, (count + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) {
        QuantizedArguments<S> a;
        a.begin = block * kBlock;
        a.end = std::min(count, a.begin + kBlock);
        kernels<S>().quantize_rows(a.begin, a.end, matrix.inputs,
                                   static_cast<const S*>(rows.const_data_ptr()), bytes.data_ptr<uint8_t>(),
                                   scales.data_ptr<float>());
        a.input = bytes.const_data_ptr<uint8_t>();
        a.input_scales = scales.const_data_ptr<float>();
        a.weight = matrix;
        a.output = static_cast<S*>(out.data_ptr());
        kernels<S>().quantized_product(a);
      }
    });
  });
  return out;
}

void quantize_layers(Model& model) {
  for (const Segment& segment : model.segments) {
    if (!segment.name.starts_with("layer.")) continue;
    for (Parameter* const parameter : segment.parameters) {
      if (parameter->group != ParameterGroup::decay || parameter->master.dim() != 2) continue;
      parameter->compute = quantize_weight(parameter->master);
      parameter->master = parameter->compute;
    }
  }
}

}  // namespace funicular::nn
