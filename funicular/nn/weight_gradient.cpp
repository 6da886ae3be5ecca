#include "funicular/nn/weight_gradient.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "funicular/nn/kernels.h"
#include "funicular/nn/own_products.h"
#include "funicular/nn/typed.h"
#include "funicular/nn/workspace.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

/// The pieces of a weight gradient.
struct GradientPieces {
  GradientPlan plan;
  int64_t across, count;  ///< side by side; all

  template <class S>
  GradientPieces(const MatmulKernels<S>& large, int64_t rows, int64_t depth, int64_t columns, int threads)
      : plan(large.gradient_plan(rows, depth, columns, threads)),
        across(ceiling(columns, plan.columns)),
        count(across * ceiling(rows, plan.rows)) {}
  Workspace::Sizes sizes(int threads) const {
    return {plan.shared, plan.each, std::min<int64_t>(count, threads)};
  }
};

/// Computes at most MatmulKernels::gradient_rows rows.
template <class S>
void add_gradient_rows(GradientArguments<S> g) {
  const MatmulKernels<S>& large = kernels<S>().large;
  const int threads = at::get_num_threads();
  const GradientPieces pieces(large, g.rows, g.depth, g.columns, threads);
  const Workspace memory(pieces.sizes(threads));
  g.packed = memory.shared();
  for_each_range(0, pieces.plan.parts, 1,
                 [&](int64_t first, int64_t last) { large.pack_gradient(g, first, last); });
  for_each_item(pieces.count, memory.workers(), [&](int64_t item, int64_t worker) {
    GradientArguments<S> part = g;
    part.first_row = item / pieces.across * pieces.plan.rows;
    part.last_row = std::min(g.rows, part.first_row + pieces.plan.rows);
    part.first_column = item % pieces.across * pieces.plan.columns;
    part.last_column = std::min(g.columns, part.first_column + pieces.plan.columns);
    part.workspace = memory.of(worker);
    large.weight_gradient(part);
  });
}

template <class S>
void add_gradient(const GradientArguments<S>& g) {
  const int64_t most = kernels<S>().large.gradient_rows;
  for (int64_t first = 0; first < g.rows; first += most) {
    GradientArguments<S> part = g;
    part.rows = std::min(most, g.rows - first);
    part.left += first;
    if (part.wide) part.wide += first * g.columns;
    if (part.narrow) part.narrow += first * g.columns;
    add_gradient_rows(part);
  }
}

/// Whether a sum of squares that began in float stayed within float's range.
bool fits_float(double sum, int64_t numbers) {
  constexpr double kLeast = 1e-30;  // of a number's square; float's smallest normal number is 1.2e-38
  return std::isfinite(sum) && sum > kLeast * static_cast<double>(numbers);
}

/// `square_sum`: see add_weight_gradient; null: not wanted.
bool add_own_gradient(const at::Tensor& gradient, const Operand& dy, const Operand& x, bool add,
                      std::optional<double>* square_sum = nullptr) {
  const auto contiguous = [](const Operand& m) { return m.tiled || m.values.is_contiguous(); };
  const bool narrow = gradient.scalar_type() == x.values.scalar_type();
  if (!x.values.is_cpu() || !gradient.is_contiguous() || !contiguous(dy) || !contiguous(x) || x.rows == 0)
    return false;
  if (!narrow && gradient.scalar_type() != at::kFloat) return false;
  if (gradient.numel() == 0) return true;
  return with_own_products(x.values.scalar_type(), [&](auto zero) {
    using S = decltype(zero);
    GradientArguments<S> g;
    g.depth = x.rows;
    g.rows = dy.columns;
    g.columns = x.columns;
    g.add = add;
    g.left = data_of<S>(dy.values);
    g.left_stride = g.rows;
    g.left_tiled = dy.tiled;
    g.right = data_of<S>(x.values);
    g.right_tiled = x.tiled;
    if (narrow)
      g.narrow = data_of<S>(gradient);
    else
      g.wide = data_of<Compute<S>>(gradient);
    RECORD_FUNCTION("funicular::weight_gradient", c10::ArrayRef<const c10::IValue>{});
    if (!square_sum || !kernels<S>().large.gives_square_sums) {
      add_gradient(g);
      return true;
    }
    std::vector<double> sums(static_cast<size_t>(ceiling(g.rows, Tiled::kSide) * kSquareSums));
    g.square_sums = sums.data();
    add_gradient(g);
    const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
    if (fits_float(sum, gradient.numel())) *square_sum = sum;
    return true;
  });
}

/// A gradient with gaps, or of another type, is added to by LibTorch.
std::optional<double> add_gradient_of_tiles(const at::Tensor& gradient, const Operand& dy, const Operand& x,
                                            bool add, bool wanted) {
  std::optional<double> square_sum;
  if (add_own_gradient(gradient, dy, x, add, wanted ? &square_sum : nullptr)) return square_sum;
  const at::Tensor own = at::empty(gradient.sizes(), x.values.options());
  TORCH_INTERNAL_ASSERT(add_own_gradient(own, dy, x, /*add=*/false));
  at::Tensor target = gradient;
  if (add)
    target.add_(own);
  else
    target.copy_(own);
  return std::nullopt;
}

/// By LibTorch.
void add_gradient_by_torch(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x, bool add) {
  at::Tensor target = gradient;
  if (better_widened(x)) {
    // The gradient itself where it is wide.
    const bool narrow = gradient.scalar_type() != at::kFloat;
    const at::Tensor wide =
        narrow && !add ? at::empty(gradient.sizes(), at::kFloat) : gradient.to(at::kFloat);
    add_weight_gradient(wide, dy.to(at::kFloat), x.to(at::kFloat), add);
    if (!wide.is_same(gradient)) target.copy_(wide);
    return;
  }
  if (gradient.is_cuda() && gradient.scalar_type() != dy.scalar_type()) {
    // The sum stays wide: cuBLAS adds in float32 what it multiplies in 16 bits.
    at::addmm_out(target, target, dy.t(), x, gradient.scalar_type(), /*beta=*/add ? 1 : 0);
    return;
  }
  if (!add) target.zero_();
  // A wide gradient is a sum that must not be rounded on its way.
  const at::ScalarType type = gradient.scalar_type();
  target.addmm_(dy.to(type).t(), x.to(type));
}

}  // namespace

std::optional<double> add_weight_gradient(const at::Tensor& gradient, const Tiled& dy, const at::Tensor& x,
                                          bool add, bool wanted) {
  return add_gradient_of_tiles(gradient, dy, x, add, wanted);
}

std::optional<double> add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const Tiled& x,
                                          bool add, bool wanted) {
  return add_gradient_of_tiles(gradient, dy, x, add, wanted);
}

std::optional<double> add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy,
                                          const at::Tensor& x, bool add, bool wanted) {
  std::optional<double> square_sum;
  if (!add_own_gradient(gradient, dy, x, add, wanted ? &square_sum : nullptr))
    add_gradient_by_torch(gradient, dy, x, add);
  return square_sum;
}

}  // namespace funicular::nn
