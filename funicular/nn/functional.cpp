#include "funicular/nn/functional.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <optional>
#include <type_traits>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/nn/kernels.h"
#include "funicular/nn/matmul.h"
#include "funicular/nn/quantized.h"

namespace funicular::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// Names a stretch of time for profilers; costs nothing where none listens.
#define FUNICULAR_EVENT(name) RECORD_FUNCTION("funicular::" name, c10::ArrayRef<const c10::IValue>{})

/// An input that may be missing: Function::apply refuses undefined tensors.
using Maybe = std::optional<at::Tensor>;
Maybe maybe(const at::Tensor& tensor) {
  return tensor.defined() ? Maybe(tensor) : std::nullopt;
}

/// Calls body with a value of the tensor's storage type.
template <class Body>
void dispatch(const at::Tensor& tensor, const char* what, Body body) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return body(float{});
    case at::kDouble:
      return body(double{});
    case at::kBFloat16:
      return body(BFloat16{});
    case at::kHalf:
      return body(Half{});
    default:
      throw InputError("nn", "{}: expected a floating-point type, found {}", what,
                       c10::toString(tensor.scalar_type()));
  }
}

/// The type of vectors and sums beside activations of this type.
at::ScalarType compute_type(const at::Tensor& activations) {
  return activations.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// The tensor's elements, null if it is undefined; throws unless S is their type.
template <class S>
S* data(const at::Tensor& tensor) {
  constexpr at::ScalarType type = std::is_same_v<S, double>     ? at::kDouble
                                  : std::is_same_v<S, float>    ? at::kFloat
                                  : std::is_same_v<S, BFloat16> ? at::kBFloat16
                                                                : at::kHalf;
  if (!tensor.defined()) return nullptr;
  if (tensor.scalar_type() != type)
    throw InputError("nn", "expected a tensor of type {}, found {}", c10::toString(type),
                     c10::toString(tensor.scalar_type()));
  return static_cast<S*>(tensor.data_ptr());
}

/// What a backward pass needs besides tensors.
template <class T>
struct Held : torch::CustomClassHolder {
  explicit Held(T v) : value(std::move(v)) {}
  T value;
};
template <class T>
void hold(AutogradContext* context, T value) {
  context->saved_data["held"] = c10::IValue::make_capsule(c10::make_intrusive<Held<T>>(std::move(value)));
}
template <class T>
const T& held(AutogradContext* context) {
  return static_cast<const Held<T>*>(context->saved_data["held"].toCapsule().get())->value;
}

DropoutArguments dropout_arguments(const DropoutSite& site, const RandomState& random) {
  DropoutArguments arguments;
  if (!random.training || site.probability <= 0) return arguments;
  const DropoutRate rate = DropoutRate::from_probability(site.probability);
  const RandomKey key = make_key(random.seed, site.purpose, site.layer);
  arguments = {key.low, key.high, rate.threshold, rate.scale()};
  return arguments;
}

/// The .grad of a weight, zero-filled if there was none. Undefined if the weight is frozen or undefined.
at::Tensor gradient_of(const at::Tensor& weight) {
  if (!weight.defined() || !weight.requires_grad()) return {};
  at::Tensor& gradient = weight.mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(weight);
  return gradient;
}

/// Rows are cut into blocks that depend on their number alone, so that sums over rows do not depend on the
/// threads.
struct RowBlocks {
  int64_t rows, size;
  explicit RowBlocks(int64_t r) : rows(r), size(std::max<int64_t>(64, (r + 63) / 64)) {}
  int64_t count() const { return (rows + size - 1) / size; }
  int64_t begin(int64_t block) const { return block * size; }
  int64_t end(int64_t block) const { return std::min(rows, (block + 1) * size); }
};

template <class Body>
void for_each_block(const RowBlocks& blocks, Body body) {
  at::parallel_for(0, blocks.count(), 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) body(block);
  });
}

/// target[c] += sum of rows of x.
void add_column_sum(const at::Tensor& x, const at::Tensor& target) {
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

// ---- linear

/// The weight's gradient += dy^T * x, if it wants one; the first of a step is written.
void learn(const at::Tensor& weight, const at::Tensor& dy, const at::Tensor& x) {
  if (!weight.requires_grad()) return;
  at::Tensor& gradient = weight.mutable_grad();
  const bool add = gradient.defined();
  if (!add) gradient = at::empty_like(weight);
  add_weight_gradient(gradient, dy, x, add);
}

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return times_transposed(x, weight);
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = outputs[0].contiguous();
    learn(weight, dy, x);
    return {context->needs_input_grad(0) ? times(dy, weight) : at::Tensor(), {}};
  }
};

// ---- bias + activation, and the two matrices around it

at::Tensor activate(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
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

/// dy becomes dx in place; adds to the bias's gradient; writes activation(x + bias) to `y` if it is defined.
void activate_backward(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                       const at::Tensor& dy, const at::Tensor& y) {
  FUNICULAR_EVENT("activation_backward");
  const at::Tensor bias_gradient = gradient_of(bias);
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

struct BiasActivationFunction : Function<BiasActivationFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias,
                            int64_t activation) {
    context->save_for_backward({x, bias});
    context->saved_data["activation"] = activation;
    return activate(x, bias, static_cast<Activation>(activation));
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor dx = outputs[0].clone(at::MemoryFormat::Contiguous);
    activate_backward(saved[0], saved[1], static_cast<Activation>(context->saved_data["activation"].toInt()),
                      dx, {});
    return {dx, {}, {}};
  }
};

struct FeedForwardFunction : Function<FeedForwardFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& up,
                            const at::Tensor& bias, const at::Tensor& down, int64_t activation) {
    const at::Tensor inner = times_transposed(x, up);
    context->save_for_backward({x, up, bias, down, inner});
    context->saved_data["activation"] = activation;
    return times_transposed(activate(inner, bias, static_cast<Activation>(activation)), down);
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &up = saved[1], &bias = saved[2], &down = saved[3], &inner = saved[4];
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const at::Tensor dy = outputs[0].contiguous();
    const at::Tensor inner_gradient = times(dy, down);
    {
      const at::Tensor activated = at::empty_like(inner);
      activate_backward(inner, bias, activation, inner_gradient, activated);
      learn(down, dy, activated);
    }
    learn(up, inner_gradient, x);
    return {context->needs_input_grad(0) ? times(inner_gradient, up) : at::Tensor(), {}, {}, {}, {}};
  }
};

// ---- attention

struct AttentionCall {
  std::vector<int32_t> offsets;
  std::vector<int64_t> draws;
  int64_t heads;
  DropoutArguments dropout;
  std::optional<RowSubset> queries;  ///< none: all rows

  int64_t rows() const { return queries ? queries->size() : offsets.empty() ? 0 : offsets.back(); }
  /// Where the rows of sequence s begin in what has a row a query.
  int64_t first_row(int64_t s) const {
    return queries ? queries->offsets[static_cast<size_t>(s)] : offsets[static_cast<size_t>(s)];
  }
};

/// Calls kernel(arguments) for every sequence and head, after fill(arguments, the sequence's first row, its
/// first query, the head's first column); work is handed out dynamically since lengths differ.
template <class S, class Fill>
void for_each_head(const AttentionCall& call, const at::Tensor& qkv, const at::Tensor& bias,
                   const at::Tensor& lse, void (*kernel)(const AttentionArguments<S>&), Fill fill) {
  using T = Compute<S>;
  const int64_t sequences = static_cast<int64_t>(call.offsets.size()) - 1;
  const int64_t hidden = qkv.size(1) / 3, head_size = hidden / call.heads;
  int64_t longest = 0;
  for (int64_t s = 0; s < sequences; ++s)
    longest = std::max<int64_t>(longest, call.offsets[s + 1] - call.offsets[s]);
  const int64_t bytes = kernels<S>().attention_workspace(longest, head_size);
  std::atomic<int64_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker) {
      const at::Tensor workspace = at::empty({bytes + 64}, at::kByte);
      const auto address = reinterpret_cast<uintptr_t>(workspace.data_ptr());
      for (int64_t item = next++; item < sequences * call.heads; item = next++) {
        const int64_t s = item / call.heads, head = item % call.heads, column = head * head_size;
        const int64_t row = call.offsets[s], first_query = call.first_row(s);
        AttentionArguments<S> a;
        a.length = call.offsets[s + 1] - row;
        a.query_count = call.first_row(s + 1) - first_query;
        if (call.queries)
          a.queries = call.queries->keys.positions.template const_data_ptr<int32_t>() + first_query;
        a.head_size = head_size;
        a.query = data<S>(qkv) + row * 3 * hidden + column;
        a.key = a.query + hidden;
        a.value = a.key + hidden;
        a.query_bias = data<T>(bias) + column;
        a.key_bias = a.query_bias + hidden;
        a.value_bias = a.key_bias + hidden;
        a.qkv_stride = 3 * hidden;
        a.context_stride = hidden;
        a.log_sum_exp = data<T>(lse) + head * call.rows() + first_query;
        a.scale = 1.0 / std::sqrt(static_cast<double>(head_size));
        a.dropout = call.dropout;
        a.head = static_cast<uint32_t>(head);
        a.draw = static_cast<uint64_t>(call.draws[s]);
        a.workspace = reinterpret_cast<unsigned char*>((address + 63) / 64 * 64);
        fill(a, row, first_query, column);
        kernel(a);
      }
    }
  });
}

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, const at::Tensor& bias,
                            AttentionCall call) {
    FUNICULAR_EVENT("attention");
    const int64_t rows = call.rows(), hidden = qkv.size(1) / 3;
    const at::Tensor out = at::empty({rows, hidden}, qkv.options());
    const at::Tensor lse = at::empty({call.heads, rows}, qkv.options().dtype(compute_type(qkv)));
    dispatch(qkv, "attention", [&](auto zero) {
      using S = decltype(zero);
      for_each_head<S>(call, qkv, bias, lse, kernels<S>().attention_forward,
                       [&](AttentionArguments<S>& a, int64_t, int64_t first_query, int64_t column) {
                         a.context = data<S>(out) + first_query * hidden + column;
                       });
    });
    context->save_for_backward({qkv, bias, lse});
    hold(context, std::move(call));
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    FUNICULAR_EVENT("attention_backward");
    const auto saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &bias = saved[1], &lse = saved[2];
    const at::Tensor dy = outputs[0].contiguous();
    const int64_t hidden = qkv.size(1) / 3;
    const auto& call = held<AttentionCall>(context);
    const at::Tensor gradient = at::empty_like(qkv);
    if (call.queries) gradient.narrow(1, 0, hidden).zero_();  // of the rows that did not ask
    dispatch(qkv, "attention", [&](auto zero) {
      using S = decltype(zero);
      for_each_head<S>(call, qkv, bias, lse, kernels<S>().attention_backward,
                       [&](AttentionArguments<S>& a, int64_t row, int64_t first_query, int64_t column) {
                         a.query_gradient = data<S>(gradient) + row * 3 * hidden + column;
                         a.key_gradient = a.query_gradient + hidden;
                         a.value_gradient = a.key_gradient + hidden;
                         a.context_gradient = data<S>(dy) + first_query * hidden + column;
                       });
    });
    if (const at::Tensor sums = gradient_of(bias); sums.defined()) add_column_sum(gradient, sums);
    return {gradient, {}, {}};
  }
};

// ---- residual + dropout + layer norm

struct NormCall {
  double epsilon = 0;
  DropoutArguments dropout;
  at::Tensor positions, draws;
  bool has_residual = false;
};

template <class S>
NormArguments<S> norm_arguments(const NormCall& call, const at::Tensor& gamma, const at::Tensor& beta,
                                int64_t width) {
  using T = Compute<S>;
  NormArguments<S> a;
  a.width = width;
  a.gamma = data<T>(gamma);
  a.beta = data<T>(beta);
  a.epsilon = call.epsilon;
  a.dropout = call.dropout;
  if (call.dropout.threshold != 0) {
    a.positions = call.positions.data_ptr<int32_t>();
    a.draws = call.draws.data_ptr<int64_t>();
  }
  return a;
}

struct NormResult {
  at::Tensor output, sum, mean, inverse_deviation;
};

NormResult norm_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call) {
  FUNICULAR_EVENT("residual_norm");
  const int64_t rows = x.size(0), width = x.size(1);
  const at::TensorOptions statistics = x.options().dtype(compute_type(x));
  NormResult result{at::empty_like(x), at::empty_like(x), at::empty({rows}, statistics),
                    at::empty({rows}, statistics)};
  dispatch(x, "layer norm", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    NormArguments<S> base = norm_arguments<S>(call, gamma, beta, width);
    base.input = data<S>(x);
    base.bias = data<T>(bias);
    base.residual = data<S>(residual);
    base.sum = data<S>(result.sum);
    base.mean = data<T>(result.mean);
    base.inverse_deviation = data<T>(result.inverse_deviation);
    base.output = data<S>(result.output);
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

struct NormGradients {
  at::Tensor residual, input;
};

/// Also adds to the gradients of gamma, beta and bias.
NormGradients norm_backward(const at::Tensor& dy, const NormResult& saved, const at::Tensor& bias,
                            const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call) {
  FUNICULAR_EVENT("residual_norm_backward");
  const int64_t rows = dy.size(0), width = dy.size(1);
  NormGradients gradients;
  gradients.residual = at::empty_like(dy);
  gradients.input = call.dropout.threshold != 0 ? at::empty_like(dy) : gradients.residual;
  const at::Tensor bias_gradient = gradient_of(bias), gamma_gradient = gradient_of(gamma),
                   beta_gradient = gradient_of(beta);
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
      a.bias_gradient = bias_gradient.defined() ? sums + 2 * plane + b * width : nullptr;
      kernels<S>().norm_backward(a);
    });
    const auto collect = [&](const at::Tensor& target, int64_t index) {
      if (target.defined())
        kernels<T>().column_sum(0, blocks.count(), width, sums + index * plane, data<T>(target));
    };
    collect(gamma_gradient, 0);
    collect(beta_gradient, 1);
    collect(bias_gradient, 2);
  });
  return gradients;
}

struct ResidualNormFunction : Function<ResidualNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Maybe& maybe_bias,
                            const Maybe& residual, const at::Tensor& gamma, const at::Tensor& beta,
                            NormCall call) {
    const at::Tensor bias = maybe_bias.value_or(at::Tensor());
    const NormResult result = norm_forward(x, bias, residual.value_or(at::Tensor()), gamma, beta, call);
    context->save_for_backward({result.sum, result.mean, result.inverse_deviation, bias, gamma, beta});
    hold(context, std::move(call));
    return result.output;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const NormCall& call = held<NormCall>(context);
    const NormGradients gradients = norm_backward(outputs[0].contiguous(), {{}, saved[0], saved[1], saved[2]},
                                                  saved[3], saved[4], saved[5], call);
    return {gradients.input, {}, call.has_residual ? gradients.residual : at::Tensor(), {}, {}, {}};
  }
};

// ---- embeddings

/// A store may be damaged or belong to another model: an id beyond the table must not become a wild read.
void check_rows(const at::Tensor& ids, int64_t rows, const char* what) {
  const int64_t* const first = ids.data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i)
    if (first[i] < 0 || first[i] >= rows)
      throw InputError(
          "bert",
          "{} {} at token {} of the batch is outside the model's {} rows; is the data damaged, or made "
          "for another model?",
          what, first[i], i, rows);
}

void drop_rows(const at::Tensor& in, const at::Tensor& out, const at::Tensor& positions,
               const at::Tensor& draws, const DropoutArguments& arguments) {
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

/// The table's gradient[ids[r]] += rows[r] for all r but those of `padding`. Rows of one id are added up
/// first, in their order: the result does not depend on the threads, and a gradient of few bits is rounded
/// once.
template <class Id>
void scatter_rows(const at::Tensor& table, const Id* ids, int64_t padding, const at::Tensor& rows) {
  FUNICULAR_EVENT("embeddings_backward");
  const at::Tensor gradient = gradient_of(table);
  if (!gradient.defined()) return;
  std::vector<int64_t> order(static_cast<size_t>(rows.size(0)));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  std::vector<size_t> runs;  // where each id begins
  for (size_t i = 0; i < order.size(); ++i)
    if (i == 0 || ids[order[i]] != ids[order[i - 1]]) runs.push_back(i);
  const auto count_of_runs = static_cast<int64_t>(runs.size());
  runs.push_back(order.size());
  const int64_t width = rows.size(1);
  dispatch(rows, "embeddings", [&](auto zero) {
    using S = decltype(zero);
    const bool narrow = gradient.scalar_type() == rows.scalar_type();
    at::parallel_for(0, count_of_runs, 16, [&](int64_t first, int64_t last) {
      for (auto run = static_cast<size_t>(first); run < static_cast<size_t>(last); ++run) {
        const int64_t* const listed = order.data() + runs[run];
        const auto count = static_cast<int64_t>(runs[run + 1] - runs[run]);
        const auto id = static_cast<int64_t>(ids[*listed]);
        if (id == padding) continue;
        if (narrow)
          kernels<S>().add_rows_narrow(listed, count, width, data<S>(rows), data<S>(gradient) + id * width);
        else
          kernels<S>().add_rows(listed, count, width, data<S>(rows), data<Compute<S>>(gradient) + id * width);
      }
    });
  });
}

struct EmbedFunction : Function<EmbedFunction> {
  struct Call {
    at::Tensor ids, types;
    NormCall norm;             // the normalisation itself drops nothing
    DropoutArguments dropout;  // after it
    int64_t padding;
  };
  static at::Tensor gather(const at::Tensor& word, const at::Tensor& position, const at::Tensor& type,
                           const Call& call) {
    const at::Tensor rows = at::empty({call.ids.size(0), word.size(1)}, word.options());
    dispatch(word, "embeddings", [&](auto zero) {
      using S = decltype(zero);
      EmbeddingArguments<S> base;
      base.width = rows.size(1);
      base.word = data<S>(word);
      base.position = data<S>(position);
      base.type = data<S>(type);
      base.ids = call.ids.data_ptr<int64_t>();
      base.types = call.types.data_ptr<int64_t>();
      base.positions = call.norm.positions.data_ptr<int32_t>();
      base.rows = data<S>(rows);
      const RowBlocks blocks(rows.size(0));
      for_each_block(blocks, [&](int64_t b) {
        EmbeddingArguments<S> a = base;
        a.begin = blocks.begin(b);
        a.end = blocks.end(b);
        kernels<S>().embedding_rows(a);
      });
    });
    return rows;
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& word, const at::Tensor& position,
                            const at::Tensor& type, const at::Tensor& gamma, const at::Tensor& beta,
                            Call call) {
    const NormResult result =
        norm_forward(gather(word, position, type, call), {}, {}, gamma, beta, call.norm);
    if (call.dropout.threshold != 0)
      drop_rows(result.output, result.output, call.norm.positions, call.norm.draws, call.dropout);
    context->save_for_backward(
        {result.sum, result.mean, result.inverse_deviation, word, position, type, gamma, beta});
    hold(context, std::move(call));
    return result.output;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const Call& call = held<Call>(context);
    at::Tensor dy = outputs[0].contiguous();
    if (call.dropout.threshold != 0) {
      const at::Tensor dropped = at::empty_like(dy);
      drop_rows(dy, dropped, call.norm.positions, call.norm.draws, call.dropout);
      dy = dropped;
    }
    const at::Tensor rows =
        norm_backward(dy, {{}, saved[0], saved[1], saved[2]}, {}, saved[6], saved[7], call.norm).residual;
    scatter_rows(saved[3], call.ids.data_ptr<int64_t>(), call.padding, rows);
    scatter_rows(saved[4], call.norm.positions.data_ptr<int32_t>(), -1, rows);
    scatter_rows(saved[5], call.types.data_ptr<int64_t>(), -1, rows);
    return {{}, {}, {}, {}, {}, {}};
  }
};

// ---- dropout

struct DropoutFunction : Function<DropoutFunction> {
  struct Call {
    at::Tensor positions, draws;
    DropoutArguments dropout;
  };
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Call call) {
    at::Tensor out = at::empty_like(x);
    drop_rows(x, out, call.positions, call.draws, call.dropout);
    hold(context, std::move(call));
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const Call& call = held<Call>(context);
    const at::Tensor dy = outputs[0].contiguous();
    at::Tensor gradient = at::empty_like(dy);
    drop_rows(dy, gradient, call.positions, call.draws, call.dropout);
    return {gradient, {}};
  }
};

// ---- vocabulary cross-entropy

constexpr int64_t kLogitRows = 512;  // rows of logits held at a time

/// The last tile of logits becomes its own gradient and waits for the backward pass, where it goes straight
/// into the weight's gradient; tiles before it, of very large batches, are multiplied at once into a sum of
/// their own.
struct VocabularyLossFunction : Function<VocabularyLossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& labels, bool gradients) {
    const int64_t rows = hidden.size(0), words = weight.size(0);
    const at::Tensor losses = at::zeros({rows}, at::kDouble);
    at::Tensor logits, hidden_gradient, weight_sum, bias_sum;
    for (int64_t begin = 0; begin < rows; begin += kLogitRows) {
      const int64_t count = std::min(kLogitRows, rows - begin);
      const at::Tensor part = hidden.narrow(0, begin, count);
      logits = times_transposed(part, weight);
      FUNICULAR_EVENT("cross_entropy");
      dispatch(logits, "cross-entropy", [&](auto zero) {
        using S = decltype(zero);
        at::parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
          kernels<S>().cross_entropy_rows(first, last, words, data<S>(logits), data<Compute<S>>(bias),
                                          labels.data_ptr<int64_t>() + begin,
                                          losses.data_ptr<double>() + begin, gradients);
        });
      });
      if (!gradients || begin + count == rows) continue;
      if (!weight_sum.defined()) {
        hidden_gradient = at::empty_like(hidden);
        weight_sum = at::zeros_like(weight);
        bias_sum = at::zeros_like(bias);
      }
      times(logits, weight, hidden_gradient.narrow(0, begin, count));
      add_weight_gradient(weight_sum, logits, part);
      add_column_sum(logits, bias_sum);
    }
    if (gradients)
      context->save_for_backward({hidden, weight, bias, logits, hidden_gradient, weight_sum, bias_sum});
    double sum = 0;  // in the order of the rows
    for (int64_t r = 0; r < rows; ++r) sum += losses.data_ptr<double>()[r];
    return at::scalar_tensor(sum, hidden.options().dtype(compute_type(hidden)));
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1], &bias = saved[2], &logits = saved[3];
    const at::Tensor &weight_sum = saved[5], &bias_sum = saved[6];
    const double factor = outputs[0].item<double>();
    const int64_t rows = hidden.size(0), last = logits.defined() ? logits.size(0) : 0;
    if (last == 0) return {at::zeros_like(hidden), {}, {}, {}, {}};
    learn(weight, logits, hidden.narrow(0, rows - last, last) * factor);
    if (const at::Tensor gradient = gradient_of(weight); gradient.defined() && weight_sum.defined())
      gradient.add_(weight_sum, factor);
    if (const at::Tensor gradient = gradient_of(bias); gradient.defined()) {
      const at::Tensor sum = bias_sum.defined() ? bias_sum : at::zeros_like(bias);
      add_column_sum(logits, sum);
      gradient.add_(sum, factor);
    }
    if (!context->needs_input_grad(0)) return {{}, {}, {}, {}, {}};
    at::Tensor hidden_gradient = saved[4].defined() ? saved[4] : at::empty_like(hidden);
    times(logits, weight, hidden_gradient.narrow(0, rows - last, last));
    return {hidden_gradient.mul_(factor), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) {
  if (is_quantized(weight)) return quantized_linear(x, weight);
  return LinearFunction::apply(x, weight);
}

at::Tensor bias_activation(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  return BiasActivationFunction::apply(x, bias, static_cast<int64_t>(activation));
}

at::Tensor feed_forward(const at::Tensor& x, const at::Tensor& up, const at::Tensor& bias,
                        const at::Tensor& down, Activation activation) {
  if (is_quantized(up)) return quantized_feed_forward(x, up, bias, down, activation);
  return FeedForwardFunction::apply(x, up, bias, down, static_cast<int64_t>(activation));
}

at::Tensor attention(const at::Tensor& qkv, const at::Tensor& bias, const Packing& packing, int64_t heads,
                     const DropoutSite& dropout, const std::optional<RowSubset>& queries) {
  return AttentionFunction::apply(qkv, bias,
                                  AttentionCall{packing.host_offsets, packing.host_draw_ids, heads,
                                                dropout_arguments(dropout, packing.random), queries});
}

at::Tensor residual_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                         const NormWeights& norm, const RowKeys& keys, const DropoutSite& dropout) {
  return ResidualNormFunction::apply(x, maybe(bias), maybe(residual), norm.gamma, norm.beta,
                                     NormCall{norm.epsilon, dropout_arguments(dropout, keys.random),
                                              keys.positions, keys.draws, residual.defined()});
}

at::Tensor embed(const EmbeddingTables& tables, const at::Tensor& ids, const at::Tensor& types,
                 const NormWeights& norm, const Packing& packing, const DropoutSite& dropout) {
  check_rows(ids, tables.word.size(0), "token id");
  check_rows(types, tables.type.size(0), "token type");
  EmbedFunction::Call call{ids, types,
                           NormCall{norm.epsilon, {}, packing.positions, packing.token_draws, false},
                           dropout_arguments(dropout, packing.random), tables.padding};
  return EmbedFunction::apply(tables.word, tables.position, tables.type, norm.gamma, norm.beta,
                              std::move(call));
}

at::Tensor dropout(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& draws,
                   const RandomState& random, const DropoutSite& site) {
  const DropoutArguments arguments = dropout_arguments(site, random);
  if (arguments.threshold == 0) return x;
  return DropoutFunction::apply(x.contiguous(), DropoutFunction::Call{positions, draws, arguments});
}

at::Tensor vocabulary_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& bias, const at::Tensor& labels) {
  const bool gradients = at::GradMode::is_enabled() &&
                         (hidden.requires_grad() || weight.requires_grad() || bias.requires_grad());
  return VocabularyLossFunction::apply(hidden, weight, bias, labels, gradients);
}

}  // namespace funicular::nn
