#include "funicular/nn/matmul.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "funicular/nn/kernels.h"
#include "funicular/nn/own_products.h"
#include "funicular/nn/typed.h"
#include "funicular/nn/workspace.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

/// How a product is cut into items of some columns and rows.
struct Pieces {
  int64_t width, columns;  ///< of an item; how many items lie side by side
  int64_t size, rows;      ///< rows of an item; how many items lie below each other

  template <class S>
  Pieces(const MatmulKernels<S>& large, int64_t all_rows, int64_t all_columns, int threads)
      : width(large.columns(all_columns, threads)), columns(ceiling(all_columns, width)) {
    const int64_t wanted = ceiling(large.pieces * threads, columns),
                  parts = std::min(wanted, ceiling(all_rows, large.fewest_rows));
    size = ceiling(all_rows, std::max<int64_t>(parts, 1));
    if (large.pack) size = ceiling(size, 32) * 32;  // whole tiles
    rows = ceiling(all_rows, size);
  }
  int64_t count() const { return columns * rows; }
};

template <class S>
int64_t padded_depth(int64_t depth) {
  const int64_t padding = kernels<S>().large.padding;
  return ceiling(depth, padding) * padding;
}

/// Bytes of a packed operand.
template <class S>
int64_t packed_bytes(int64_t depth, int64_t columns) {
  const int64_t panel = kernels<S>().large.panel;
  return ceiling(columns, panel) * panel * padded_depth<S>(depth) * static_cast<int64_t>(sizeof(S));
}

/// The memory of a product. All threads share the right operand, packed once if several items need it, or the widened
/// left operand. Each thread has the workspace of one item.
template <class S>
Workspace::Sizes product_sizes(const Pieces& pieces, int64_t depth, int64_t columns, int threads) {
  const MatmulKernels<S>& large = kernels<S>().large;
  const bool packs = pieces.rows > 1 && large.pack;
  const int64_t widened =
      large.widen ? pieces.size * pieces.rows * depth * static_cast<int64_t>(sizeof(Compute<S>)) : 0;
  return {packs ? packed_bytes<S>(depth, columns) : widened,
          large.workspace(pieces.size, depth, pieces.width, packs),
          std::min<int64_t>(pieces.count(), threads)};
}

/// The activation of a product's piece that begins at this row and column; both are multiples of 32.
template <class S>
ActivationOfProduct<S> activation_of_piece(ActivationOfProduct<S> a, int64_t row, int64_t column,
                                           int64_t columns) {
  const int64_t place = row * columns + column * Tiled::kSide;
  a.bias += column;
  a.activated += place;
  if (a.before) {
    a.before += place;
    a.bias_gradient += row / Tiled::kSide * columns + column;
  }
  return a;
}

/// The product in items that threads take in turn.
template <class S>
void multiply(MatmulArguments<S> whole, int64_t columns) {
  const MatmulKernels<S>& large = kernels<S>().large;
  const int threads = at::get_num_threads();
  const Pieces pieces(large, whole.rows, columns, threads);
  const Workspace::Sizes sizes = product_sizes<S>(pieces, whole.depth, columns, threads);
  const Workspace memory(sizes);
  whole.last_column = columns;
  if (large.widen) {
    constexpr int64_t kRows = 16;
    auto* const wide = reinterpret_cast<Compute<S>*>(memory.shared());
    whole.wide_left = wide;
    for_each_range(0, whole.rows, kRows,
                   [&](int64_t first, int64_t last) { large.widen(whole, first, last, wide); });
  } else if (sizes.shared > 0) {
    whole.packed = memory.shared();
    for_each_range(0, ceiling(columns, large.panel), 1,
                   [&](int64_t first, int64_t last) { large.pack(whole, first, last, memory.shared()); });
  }
  for_each_item(pieces.count(), memory.workers(), [&](int64_t item, int64_t worker) {
    MatmulArguments<S> part = whole;
    const int64_t row = item / pieces.columns * pieces.size;
    part.rows = std::min(pieces.size, whole.rows - row);
    part.left += row * whole.left_stride;
    if (part.wide_left) part.wide_left += row * whole.depth;
    if (part.out) part.out += row * whole.out_stride;
    part.first_column = item % pieces.columns * pieces.width;
    part.last_column = std::min(columns, part.first_column + pieces.width);
    part.workspace = memory.of(worker);
    ActivationOfProduct<S> activation;
    if (whole.activation) {
      activation = activation_of_piece(*whole.activation, row, part.first_column, whole.out_stride);
      part.activation = &activation;
    }
    large.matmul(part);
  });
}

/// All but the result.
template <class S>
MatmulArguments<S> product_of(const Operand& x, const at::Tensor& weight, bool transposed) {
  MatmulArguments<S> m;
  m.rows = x.rows;
  m.depth = x.columns;
  m.left = data_of<S>(x.values);
  m.left_stride = x.stride;
  m.left_tiled = x.tiled;
  m.right = data_of<S>(weight);
  m.right_stride = weight.stride(0);
  m.right_transposed = transposed;
  return m;
}

bool multiply_own(const Operand& x, const at::Tensor& weight, bool transposed, const at::Tensor& out,
                  bool add = false) {
  if (!x.usable() || weight.stride(1) != 1 || out.stride(1) != 1 || x.rows == 0 || out.size(1) == 0)
    return false;
  return with_own_products(x.values.scalar_type(), [&](auto zero) {
    using S = decltype(zero);
    MatmulArguments<S> m = product_of<S>(x, weight, transposed);
    if (m.depth == 0 || m.depth % kernels<S>().large.group != 0) return false;
    m.add = add;
    m.out = data_of<S>(out);
    m.out_stride = out.stride(0);
    RECORD_FUNCTION("funicular::matmul", c10::ArrayRef<const c10::IValue>{});
    multiply(m, out.size(1));
    return true;
  });
}

}  // namespace

bool has_own_products(at::ScalarType type) {
  return with_own_products(type, [](auto) { return true; });
}

bool products_are_widened(at::ScalarType type) {
#if defined(__x86_64__)
  return (type == at::kHalf || type == at::kBFloat16) && !has_own_products(type);
#else
  return false;
#endif
}

bool may_be_tiled(at::ScalarType type, int64_t depth, int64_t columns) {
  const MatmulKernels<BFloat16>& large = kernels<BFloat16>().large;
  return type == at::kBFloat16 && large.tiled && depth > 0 && depth % large.group == 0 && columns > 0 &&
         columns % Tiled::kSide == 0;
}

bool may_be_tiled(const at::Tensor& x, int64_t columns) {
  return may_be_tiled(x.scalar_type(), x.size(1), columns) && x.size(0) > 0 && x.is_cpu() &&
         x.is_contiguous() && !funicular::device::takes(x);
}

namespace {

/// x * weight, or its transpose, and the activation that follows. `out` gets the product before the activation, or
/// its gradient; it may be undefined.
void multiply_and_activate(const at::Tensor& x, const at::Tensor& weight, bool transposed, const Tiled& out,
                           int64_t columns, ActivationOfProduct<BFloat16> activation) {
  TORCH_INTERNAL_ASSERT(may_be_tiled(x, columns) && weight.stride(1) == 1 &&
                        weight.size(transposed ? 0 : 1) == columns &&
                        weight.size(transposed ? 1 : 0) == x.size(1));
  MatmulArguments<BFloat16> m = product_of<BFloat16>(x, weight, transposed);
  m.out = out.defined() ? data_of<BFloat16>(out.squares) : nullptr;
  m.out_stride = columns;
  const bool large = m.rows * columns * static_cast<int64_t>(sizeof(BFloat16)) > kMostKept;
  activation.past = large && m.out && !activation.before && reinterpret_cast<uintptr_t>(m.out) % 64 == 0;
  m.activation = &activation;
  multiply(m, columns);
}

/// target [columns] += the sum of the rows of `partial`, always in the same order. Overwrites `partial`.
void add_partial_sums(const at::Tensor& partial, const at::Tensor& target) {
  constexpr int64_t kBlock = 16;
  const int64_t rows = partial.size(0), columns = partial.size(1), blocks = ceiling(rows, kBlock);
  float* const sums = data<float>(partial);
  const auto& column_sum = kernels<float>().column_sum;
  for_each_range(0, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first * kBlock; row < std::min(rows, last * kBlock); row += kBlock)
      column_sum(row + 1, std::min(rows, row + kBlock), columns, sums, sums + row * columns);
  });
  for (int64_t row = 0; row < rows; row += kBlock)
    column_sum(row, row + 1, columns, sums, data<float>(target));
}

}  // namespace

Tiled activated_product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        Activation activation, Tiled* before) {
  FUNICULAR_EVENT("matmul_activation");
  const int64_t columns = weight.size(0);
  const Tiled activated = Tiled::empty(x.size(0), columns, x.options());
  if (before) *before = Tiled::empty(x.size(0), columns, x.options());
  ActivationOfProduct<BFloat16> a;
  a.activation = activation;
  a.bias = data<float>(bias);
  a.activated = data_of<BFloat16>(activated.squares);
  multiply_and_activate(x, weight, /*transposed=*/true, before ? *before : Tiled(), columns, a);
  return activated;
}

ActivationGradient activation_gradient(const at::Tensor& dy, const at::Tensor& weight, const Tiled& before,
                                       const at::Tensor& bias, Activation activation,
                                       const at::Tensor& bias_gradient) {
  FUNICULAR_EVENT("matmul_activation_backward");
  const int64_t columns = before.columns();
  const ActivationGradient result{Tiled::empty(before.rows, columns, dy.options()),
                                  Tiled::empty(before.rows, columns, dy.options())};
  const at::Tensor partial = at::empty({before.squares.size(0), columns}, dy.options().dtype(at::kFloat));
  ActivationOfProduct<BFloat16> a;
  a.activation = activation;
  a.bias = data<float>(bias);
  a.activated = data_of<BFloat16>(result.activated.squares);
  a.before = data_of<BFloat16>(before.squares);
  a.bias_gradient = data<float>(partial);
  multiply_and_activate(dy, weight, /*transposed=*/false, result.before, columns, a);
  if (bias_gradient.defined()) add_partial_sums(partial, bias_gradient);
  return result;
}

at::Tensor times_transposed(const Tiled& x, const at::Tensor& weight) {
  const at::Tensor out = at::empty({x.rows, weight.size(0)}, x.squares.options());
  TORCH_INTERNAL_ASSERT(multiply_own(x, weight, /*transposed=*/true, out));
  return out;
}

at::Tensor times(const Tiled& x, const at::Tensor& weight) {
  const at::Tensor out = at::empty({x.rows, weight.size(1)}, x.squares.options());
  TORCH_INTERNAL_ASSERT(multiply_own(x, weight, /*transposed=*/false, out));
  return out;
}

namespace {

/// A matrix of the addend's numbers that may be written to. A gradient on its way back is mostly the caller's alone.
at::Tensor to_add_to(at::Tensor addend) {
  const bool alone = addend.use_count() == 1 && addend.storage().use_count() == 1;
  return alone && addend.is_contiguous() && !addend.requires_grad()
             ? addend
             : addend.clone(at::MemoryFormat::Contiguous);
}

}  // namespace

at::Tensor add_times(at::Tensor addend, const Tiled& x, const at::Tensor& weight) {
  const at::Tensor result = to_add_to(std::move(addend));
  TORCH_INTERNAL_ASSERT(multiply_own(x, weight, /*transposed=*/false, result, /*add=*/true));
  return result;
}

at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& weight) {
  if (better_widened(x)) return times_transposed(x.to(at::kFloat), weight.to(at::kFloat)).to(x.scalar_type());
  const at::Tensor out = at::empty({x.size(0), weight.size(0)}, x.options());
  if (!multiply_own(x, weight, /*transposed=*/true, out)) {
    at::Tensor result = out;
    at::mm_out(result, x, weight.t());
  }
  return out;
}

at::Tensor times_transposed(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::addmm(bias.to(x.scalar_type()), x, weight.t());
}

at::Tensor times(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out) {
  if (better_widened(x)) {
    const at::Tensor wide = times(x.to(at::kFloat), weight.to(at::kFloat));
    return out.defined() ? out.copy_(wide) : wide.to(x.scalar_type());
  }
  at::Tensor result = out.defined() ? out : at::empty({x.size(0), weight.size(1)}, x.options());
  if (!multiply_own(x, weight, /*transposed=*/false, result)) at::mm_out(result, x, weight);
  return result;
}

at::Tensor add_times(at::Tensor addend, const at::Tensor& x, const at::Tensor& weight) {
  const bool widens = better_widened(x);
  const at::ScalarType type = addend.scalar_type();
  at::Tensor result =
      widens ? addend.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous)
             : to_add_to(std::move(addend));
  const at::Tensor left = widens ? x.to(at::kFloat) : x, right = widens ? weight.to(at::kFloat) : weight;
  if (!multiply_own(left, right, /*transposed=*/false, result, /*add=*/true)) result.addmm_(left, right);
  return widens ? result.to(type) : result;
}

}  // namespace funicular::nn
