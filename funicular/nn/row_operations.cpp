#include "funicular/nn/row_operations.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <numeric>
#include <vector>

#include "funicular/nn/device/operations.h"
#include "funicular/nn/kernel_arguments.h"
#include "funicular/nn/typed.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/work_items.h"

namespace funicular::nn {

namespace {

/// All rows in blocks of rows_of_a_block; the last may have fewer.
struct RowBlocks {
  int64_t rows, size;
  explicit RowBlocks(int64_t r) : rows(r), size(rows_of_a_block(r)) {}
  int64_t count() const { return (rows + size - 1) / size; }
  int64_t begin(int64_t block) const { return block * size; }
  int64_t end(int64_t block) const { return std::min(rows, (block + 1) * size); }
};

template <class Body>
void for_each_block(const RowBlocks& blocks, Body body) {
  for_each_item(blocks.count(), body);
}

/// Rows in the order of their ids, and where each id begins.
struct Runs {
  std::vector<int64_t> order;
  std::vector<size_t> begins;  ///< and the end
};

template <class Id>
Runs runs_of(const Id* ids, int64_t count) {
  Runs runs;
  runs.order.resize(static_cast<size_t>(count));
  std::iota(runs.order.begin(), runs.order.end(), 0);
  std::stable_sort(runs.order.begin(), runs.order.end(),
                   [&](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  for (size_t i = 0; i < runs.order.size(); ++i)
    if (i == 0 || ids[runs.order[i]] != ids[runs.order[i - 1]]) runs.begins.push_back(i);
  runs.begins.push_back(runs.order.size());
  return runs;
}

/// row(i) of `gradient` += the sum of the rows of run i, if row(i) is not negative.
template <class RowOf>
void add_runs(const at::Tensor& gradient, const Runs& runs, const at::Tensor& rows, RowOf row) {
  const int64_t width = rows.size(1);
  dispatch(rows, "embeddings", [&](auto zero) {
    using S = decltype(zero);
    const bool narrow = gradient.scalar_type() == rows.scalar_type();
    for_each_range(0, static_cast<int64_t>(runs.begins.size()) - 1, 16, [&](int64_t first, int64_t last) {
      for (auto run = static_cast<size_t>(first); run < static_cast<size_t>(last); ++run) {
        const int64_t* const listed = runs.order.data() + runs.begins[run];
        const auto count = static_cast<int64_t>(runs.begins[run + 1] - runs.begins[run]);
        const int64_t target = row(run);
        if (target < 0) continue;
        if (narrow)
          kernels<S>().add_rows_narrow(listed, count, width, data<S>(rows),
                                       data<S>(gradient) + target * width);
        else
          kernels<S>().add_rows(listed, count, width, data<S>(rows),
                                data<Compute<S>>(gradient) + target * width);
      }
    });
  });
}

template <class Id>
void scatter(const at::Tensor& gradient, const Id* ids, int64_t padding, const at::Tensor& rows) {
  const Runs runs = runs_of(ids, rows.size(0));
  add_runs(gradient, runs, rows, [&](size_t run) {
    const auto id = static_cast<int64_t>(ids[runs.order[runs.begins[run]]]);
    return id == padding ? -1 : id;
  });
}

}  // namespace

NormResult norm_result(const at::Tensor& like, int64_t rows) {
  const at::TensorOptions options = like.options().requires_grad(false),
                          statistics = options.dtype(compute_type(like));
  return {at::empty({rows, like.size(1)}, options), at::empty({rows, like.size(1)}, options),
          at::empty({rows}, statistics), at::empty({rows}, statistics)};
}

NormResult norm_result(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                       const NormCall& call) {
  if (bias.defined() || residual.defined() || call.dropout.threshold != 0) return norm_result(x, x.size(0));
  const at::TensorOptions options = x.options().requires_grad(false),
                          statistics = options.dtype(compute_type(x));
  return {at::empty(x.sizes(), options), x.detach(), at::empty({x.size(0)}, statistics),
          at::empty({x.size(0)}, statistics)};
}

int64_t rows_of_a_block(int64_t rows) {
  constexpr int64_t kAbout = 32, kFewest = 8, kMultiple = 8, kMost = 64;
  const int64_t wanted = (rows + kAbout * kMultiple - 1) / (kAbout * kMultiple) * kMultiple,
                blocks = std::clamp<int64_t>(wanted, 1, kMost);
  return std::max(kFewest, (rows + blocks - 1) / blocks);
}

void add_column_sum(const at::Tensor& x, const at::Tensor& target) {
  if (funicular::device::takes(x)) return device::add_column_sum(x, target);
  FUNICULAR_EVENT("column_sum");
  dispatch(x, "column sum", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const RowBlocks blocks(x.size(0));
    const int64_t width = x.size(1);
    const at::Tensor partial = at::zeros({blocks.count(), width}, x.options().dtype(compute_type(x)));
    for_each_block(blocks, [&](int64_t b) {
      kernels<S>().column_sum(blocks.begin(b), blocks.end(b), width, data<S>(x),
                              data<T>(partial) + b * width);
    });
    kernels<T>().column_sum(0, blocks.count(), width, data<T>(partial), data<T>(target));
  });
}

at::Tensor activate(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  if (funicular::device::takes(x)) return device::activate(x, bias, activation);
  FUNICULAR_EVENT("activation");
  const at::Tensor y = at::empty_like(x);
  dispatch(x, "activation", [&](auto zero) {
    using S = decltype(zero);
    ActivationArguments<S> base;
    base.activation = activation;
    base.width = x.size(1);
    base.input = data<S>(x);
    base.bias = data<Compute<S>>(bias);
    base.output = data<S>(y);
    const RowBlocks blocks(x.size(0));
    for_each_block(blocks, [&](int64_t b) {
      ActivationArguments<S> a = base;
      a.begin = blocks.begin(b);
      a.end = blocks.end(b);
      kernels<S>().activation_forward(a);
    });
  });
  return y;
}

void activate_backward(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                       const at::Tensor& dy, const at::Tensor& y, const at::Tensor& bias_gradient) {
  if (funicular::device::takes(x))
    return device::activate_backward(x, bias, activation, dy, y, bias_gradient);
  FUNICULAR_EVENT("activation_backward");
  dispatch(x, "activation", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const int64_t width = x.size(1);
    const RowBlocks blocks(x.size(0));
    const at::Tensor partial = at::zeros({blocks.count(), width}, x.options().dtype(compute_type(x)));
    ActivationArguments<S> base;
    base.activation = activation;
    base.width = width;
    base.input = data<S>(x);
    base.bias = data<T>(bias);
    base.output = data<S>(y);
    base.output_gradient = base.input_gradient = data<S>(dy);
    for_each_block(blocks, [&](int64_t b) {
      ActivationArguments<S> a = base;
      a.begin = blocks.begin(b);
      a.end = blocks.end(b);
      a.bias_gradient = bias_gradient.defined() ? data<T>(partial) + b * width : nullptr;
      kernels<S>().activation_backward(a);
    });
    if (bias_gradient.defined())
      kernels<T>().column_sum(0, blocks.count(), width, data<T>(partial), data<T>(bias_gradient));
  });
}

NormResult norm_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call) {
  if (funicular::device::takes(x)) return device::norm_forward(x, bias, residual, gamma, beta, call);
  FUNICULAR_EVENT("residual_norm");
  const int64_t rows = x.size(0), width = x.size(1);
  const NormResult result = norm_result(x, bias, residual, call);
  dispatch(x, "layer norm", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    NormArguments<S> base = norm_arguments<S>(call, gamma, beta, width);
    base.input = data<S>(x);
    base.bias = data<T>(bias);
    base.residual = data<S>(residual);
    write_to(result, base);
    const RowBlocks blocks(rows);
    for_each_block(blocks, [&](int64_t b) {
      NormArguments<S> a = base;
      a.begin = blocks.begin(b);
      a.end = blocks.end(b);
      kernels<S>().norm_forward(a);
    });
  });
  return result;
}

NormResult embed_forward(const LookedUp& rows, const at::Tensor& gamma, const at::Tensor& beta,
                         const NormCall& call) {
  if (funicular::device::takes(rows.word)) return device::embed_forward(rows, gamma, beta, call);
  FUNICULAR_EVENT("embeddings");
  const int64_t count = rows.ids.size(0);
  const NormResult result = norm_result(rows.word, count);
  dispatch(rows.word, "embeddings", [&](auto zero) {
    using S = decltype(zero);
    const EmbeddingArguments<S> base = embedding_arguments<S>(rows, gamma, beta, call, result);
    const RowBlocks blocks(count);
    for_each_block(blocks, [&](int64_t b) {
      EmbeddingArguments<S> a = base;
      a.norm.begin = blocks.begin(b);
      a.norm.end = blocks.end(b);
      kernels<S>().embedding_norm(a);
    });
  });
  return result;
}

NormGradients norm_backward(const at::Tensor& dy, const NormResult& saved, const at::Tensor& gamma,
                            const at::Tensor& beta, const NormCall& call, const NormVectors& vectors) {
  if (funicular::device::takes(dy)) return device::norm_backward(dy, saved, gamma, beta, call, vectors);
  FUNICULAR_EVENT("residual_norm_backward");
  const int64_t rows = dy.size(0), width = dy.size(1);
  NormGradients gradients;
  gradients.residual = at::empty_like(dy);
  gradients.input = call.dropout.threshold != 0 ? at::empty_like(dy) : gradients.residual;
  dispatch(dy, "layer norm", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    NormArguments<S> base = norm_arguments<S>(call, gamma, beta, width);
    base.sum = data<S>(saved.sum);
    base.mean = data<T>(saved.mean);
    base.inverse_deviation = data<T>(saved.inverse_deviation);
    base.output_gradient = data<S>(dy);
    base.residual_gradient = data<S>(gradients.residual);
    base.input_gradient = data<S>(gradients.input);
    const RowBlocks blocks(rows);
    const at::Tensor partial = at::zeros({3, blocks.count(), width}, dy.options().dtype(compute_type(dy)));
    T* const sums = data<T>(partial);
    const int64_t plane = blocks.count() * width;
    for_each_block(blocks, [&](int64_t b) {
      NormArguments<S> a = base;
      a.begin = blocks.begin(b);
      a.end = blocks.end(b);
      a.gamma_gradient = sums + b * width;
      a.beta_gradient = sums + plane + b * width;
      a.bias_gradient = vectors.bias.defined() ? sums + 2 * plane + b * width : nullptr;
      kernels<S>().norm_backward(a);
    });
    const auto collect = [&](const at::Tensor& target, int64_t index) {
      if (target.defined())
        kernels<T>().column_sum(0, blocks.count(), width, sums + index * plane, data<T>(target));
    };
    collect(vectors.gamma, 0);
    collect(vectors.beta, 1);
    collect(vectors.bias, 2);
  });
  return gradients;
}

void drop_rows(const at::Tensor& in, const at::Tensor& out, const at::Tensor& positions,
               const at::Tensor& draws, const DropoutArguments& arguments) {
  if (funicular::device::takes(in)) return device::drop_rows(in, out, positions, draws, arguments);
  FUNICULAR_EVENT("dropout");
  dispatch(in, "dropout", [&](auto zero) {
    using S = decltype(zero);
    const RowBlocks blocks(in.size(0));
    for_each_block(blocks, [&](int64_t b) {
      kernels<S>().dropout_rows(blocks.begin(b), blocks.end(b), in.size(1), data<S>(in), data<S>(out),
                                positions.data_ptr<int32_t>(), draws.data_ptr<int64_t>(), arguments);
    });
  });
}

void scatter_rows(const at::Tensor& gradient, const at::Tensor& ids, int64_t padding,
                  const at::Tensor& rows) {
  FUNICULAR_EVENT("embeddings_backward");
  if (funicular::device::takes(rows)) return device::scatter_rows(gradient, ids, padding, rows);
  if (ids.scalar_type() == at::kLong)
    scatter(gradient, ids.const_data_ptr<int64_t>(), padding, rows);
  else
    scatter(gradient, ids.const_data_ptr<int32_t>(), padding, rows);
}

at::Tensor sum_rows(const at::Tensor& table, const at::Tensor& ids, int64_t padding, const at::Tensor& rows) {
  FUNICULAR_EVENT("embeddings_backward");
  const auto* const id = ids.const_data_ptr<int64_t>();
  const Runs runs = runs_of(id, rows.size(0));
  std::vector<int64_t> places(runs.begins.size() - 1, -1), used;
  for (size_t run = 0; run < places.size(); ++run) {
    const int64_t found = id[runs.order[runs.begins[run]]];
    if (found == padding) continue;
    places[run] = static_cast<int64_t>(used.size());
    used.push_back(found);
  }
  const at::Tensor values = at::zeros({static_cast<int64_t>(used.size()), table.size(1)}, table.options());
  add_runs(values, runs, rows, [&](size_t run) { return places[run]; });
  return at::_sparse_coo_tensor_unsafe(at::tensor(used, at::kLong).unsqueeze(0), values, table.sizes(),
                                       table.options().layout(at::kSparse))
      ._coalesced_(true);
}

void cross_entropy_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                        const at::Tensor& losses, bool gradients) {
  FUNICULAR_EVENT("cross_entropy");
  if (funicular::device::takes(logits))
    return device::cross_entropy_rows(logits, bias, labels, losses, gradients);
  dispatch(logits, "cross-entropy", [&](auto zero) {
    using S = decltype(zero);
    for_each_item(logits.size(0), [&](int64_t row) {
      kernels<S>().cross_entropy_rows(row, row + 1, logits.size(1), data<S>(logits), data<Compute<S>>(bias),
                                      labels.data_ptr<int64_t>(), losses.data_ptr<double>(), gradients);
    });
  });
}

void sample_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms,
                 const at::Tensor& tokens, const at::Tensor& best) {
  FUNICULAR_EVENT("sampling");
  if (funicular::device::takes(logits)) return device::sample_rows(logits, bias, uniforms, tokens, best);
  dispatch(logits, "sampling", [&](auto zero) {
    using S = decltype(zero);
    for_each_item(logits.size(0), [&](int64_t row) {
      kernels<S>().sample_rows(row, row + 1, logits.size(1), data<S>(logits), data<Compute<S>>(bias),
                               uniforms.const_data_ptr<double>(), tokens.data_ptr<int64_t>(),
                               best.defined() ? best.data_ptr<int64_t>() : nullptr);
    });
  });
}

}  // namespace funicular::nn
