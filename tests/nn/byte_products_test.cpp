// Claims about the kernels of 8-bit products that nn/quantized.h spreads over threads: exact for all bytes,
// whatever instructions make them. The test runs once for each instruction set (tests/CMakeLists.txt).
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "funicular/nn/kernels.h"

namespace funicular::nn {
namespace {

/// Weights [outputs, inputs] of whole numbers from -128 to 127 in the layout of QuantizedMatrix, scales 1.
struct BytesOfWeights {
  std::vector<int8_t> values;
  std::vector<int32_t> shifts, turned_shifts;
  std::vector<float> scales;
  QuantizedMatrix matrix;

  explicit BytesOfWeights(const at::Tensor& weights) {
    matrix.outputs = weights.size(0);
    matrix.inputs = weights.size(1);
    const int64_t groups = (matrix.inputs + 3) / 4,
                  panels = (matrix.outputs + kQuantizedPanel - 1) / kQuantizedPanel;
    const auto padded = static_cast<size_t>(panels * kQuantizedPanel);
    values.resize(padded * static_cast<size_t>(groups * 4));
    shifts.resize(padded);
    turned_shifts.resize(padded);
    scales.assign(padded, 1);
    const at::Tensor whole = weights.to(at::kInt).contiguous();
    for (int64_t o = 0; o < matrix.outputs; ++o)
      for (int64_t i = 0; i < matrix.inputs; ++i) {
        const int32_t value = whole.const_data_ptr<int32_t>()[o * matrix.inputs + i];
        const int64_t line = o / kQuantizedPanel * groups + i / 4;
        values[static_cast<size_t>((line * kQuantizedPanel + o % kQuantizedPanel) * 4 + i % 4)] =
            static_cast<int8_t>(value);
        shifts[static_cast<size_t>(o)] += 128 * value;
        turned_shifts[static_cast<size_t>(o)] += value < 0 ? value : 0;
      }
    matrix.values = values.data();
    matrix.shifts = shifts.data();
    matrix.turned_shifts = turned_shifts.data();
    matrix.scales = scales.data();
  }
};

/// The kernel's product of activations [rows, inputs] of whole numbers from 0 to 255, which stand for numbers
/// from -128 to 127.
at::Tensor product_of_bytes(const at::Tensor& activations, const QuantizedMatrix& weight) {
  const int64_t rows = activations.size(0), stride = (weight.inputs + 3) / 4 * 4;
  at::Tensor bytes = torch::full({rows, stride}, 128, at::kByte);
  bytes.narrow(1, 0, weight.inputs).copy_(activations);
  const std::vector<float> scales(static_cast<size_t>(rows), 1);
  const at::Tensor out = torch::full({rows, weight.outputs}, -1, at::kFloat);
  QuantizedArguments<float> a;
  a.end = rows;
  a.input = bytes.const_data_ptr<uint8_t>();
  a.input_scales = scales.data();
  a.weight = weight;
  a.output = out.data_ptr<float>();
  kernels<float>().quantized_product(a);
  return out;
}

/// [rows, columns], each one of `choices`.
at::Tensor chosen(at::IntArrayRef shape, const std::vector<int64_t>& choices) {
  return at::tensor(choices, at::kLong)
      .index({at::randint(static_cast<int64_t>(choices.size()), shape, at::kLong)});
}

void expect_exact(const at::Tensor& activations, const at::Tensor& weights) {
  const BytesOfWeights bytes(weights);
  const at::Tensor expected = at::mm(activations.to(at::kDouble) - 128, weights.to(at::kDouble).t());
  EXPECT_TRUE(torch::equal(product_of_bytes(activations, bytes.matrix), expected.to(at::kFloat)))
      << activations.sizes() << " times " << weights.sizes();
}

TEST(QuantizedProducts, OfAnyBytesAreExact) {
  torch::manual_seed(3);
  for (const int64_t inputs : {1, 2, 5, 64, 130, 771, 1540})  // longer ones are summed in several blocks
    for (const int64_t rows : {1, 5, 7, 101})
      for (const int64_t outputs : {1, 17, 64, 70})
        expect_exact(at::randint(0, 256, {rows, inputs}, at::kLong),
                     at::randint(-128, 128, {outputs, inputs}, at::kLong));
}

TEST(QuantizedProducts, OfTheLargestBytesAreNotCutOffOnTheWay) {
  torch::manual_seed(4);
  for (const int64_t inputs : {2, 64, 768, 3072}) {
    for (const int64_t activation : {0, 255})
      for (const int64_t weight : {-128, 127})
        expect_exact(torch::full({9, inputs}, activation, at::kLong),
                     torch::full({66, inputs}, weight, at::kLong));
    // All pairs of neighbours occur.
    expect_exact(chosen({40, inputs}, {0, 1, 127, 128, 254, 255}),
                 chosen({130, inputs}, {-128, -127, -1, 0, 1, 127}));
  }
}

}  // namespace
}  // namespace funicular::nn
