#include "funicular/nn/functional.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "funicular/base/error.h"
#include "funicular/nn/kernels.h"

namespace funicular::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// An input that may be missing: Function::apply refuses undefined tensors.
using Maybe = std::optional<at::Tensor>;
Maybe maybe(const at::Tensor& tensor) {
  return tensor.defined() ? Maybe(tensor) : std::nullopt;
}

/// Calls body with a value of the tensor's scalar type: float or double.
template <class Body>
void dispatch(const at::Tensor& tensor, const char* what, Body body) {
  if (tensor.scalar_type() == at::kFloat) return body(float{});
  if (tensor.scalar_type() == at::kDouble) return body(double{});
  throw InputError("nn", "{}: expected float32 or float64, found {}", what,
                   c10::toString(tensor.scalar_type()));
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

template <class T>
T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<T>() : nullptr;
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
  dispatch(x, "column sum", [&](auto zero) {
    using T = decltype(zero);
    const RowBlocks blocks(x.size(0));
    const int64_t width = x.size(1);
    const at::Tensor partial = at::zeros({blocks.count(), width}, x.options());
    for_each_block(blocks, [&](int64_t b) {
      kernels<T>().column_sum(blocks.begin(b), blocks.end(b), width, x.data_ptr<T>(),
                              partial.data_ptr<T>() + b * width);
    });
    kernels<T>().column_sum(0, blocks.count(), width, partial.data_ptr<T>(), target.data_ptr<T>());
  });
}

// ---- linear
// -------------------------------------------------------------------------------------------------------

struct LinearFunction : Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const Maybe& maybe_bias) {
    const at::Tensor bias = maybe_bias.value_or(at::Tensor());
    context->save_for_backward({x, weight, bias});
    return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const at::Tensor dy = outputs[0].contiguous();
    if (at::Tensor gradient = gradient_of(weight); gradient.defined()) gradient.addmm_(dy.t(), x);
    if (const at::Tensor gradient = gradient_of(bias); gradient.defined()) add_column_sum(dy, gradient);
    return {context->needs_input_grad(0) ? at::mm(dy, weight) : at::Tensor(), {}, {}};
  }
};

// ---- attention
// ----------------------------------------------------------------------------------------------------

struct AttentionCall {
  std::vector<int32_t> offsets;
  std::vector<int64_t> draws;
  int64_t heads;
  DropoutArguments dropout;
};

/// Calls kernel(arguments) for every sequence and head; work is handed out dynamically since lengths differ.
template <class T, class Fill>
void for_each_head(const AttentionCall& call, int64_t hidden, void (*kernel)(const AttentionArguments<T>&),
                   Fill fill) {
  const int64_t sequences = static_cast<int64_t>(call.offsets.size()) - 1, head_size = hidden / call.heads;
  int64_t longest = 0;
  for (int64_t s = 0; s < sequences; ++s)
    longest = std::max<int64_t>(longest, call.offsets[s + 1] - call.offsets[s]);
  const int64_t elements = kernels<T>().attention_workspace(longest, head_size);
  std::atomic<int64_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t first, int64_t last) {
    for (int64_t worker = first; worker < last; ++worker) {
      const at::Tensor workspace = at::empty({elements * static_cast<int64_t>(sizeof(T)) + 64}, at::kByte);
      const auto address = reinterpret_cast<uintptr_t>(workspace.data_ptr());
      for (int64_t item = next++; item < sequences * call.heads; item = next++) {
        const int64_t s = item / call.heads, head = item % call.heads;
        AttentionArguments<T> a;
        a.length = call.offsets[s + 1] - call.offsets[s];
        a.head_size = head_size;
        a.qkv_stride = 3 * hidden;
        a.context_stride = hidden;
        a.scale = 1.0 / std::sqrt(static_cast<double>(head_size));
        a.dropout = call.dropout;
        a.head = static_cast<uint32_t>(head);
        a.draw = static_cast<uint64_t>(call.draws[s]);
        a.workspace = reinterpret_cast<T*>((address + 63) / 64 * 64);
        fill(a, call.offsets[s], head * head_size, head);
        kernel(a);
      }
    }
  });
}

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, AttentionCall call) {
    const int64_t tokens = qkv.size(0), hidden = qkv.size(1) / 3;
    at::Tensor out = at::empty({tokens, hidden}, qkv.options());
    const at::Tensor lse = at::empty({call.heads, tokens}, qkv.options());
    dispatch(qkv, "attention", [&](auto zero) {
      using T = decltype(zero);
      const T* const base = qkv.data_ptr<T>();
      T *const context_base = out.data_ptr<T>(), *const lse_base = lse.data_ptr<T>();
      for_each_head<T>(call, hidden, kernels<T>().attention_forward,
                       [&](AttentionArguments<T>& a, int64_t row, int64_t column, int64_t head) {
                         a.query = base + row * 3 * hidden + column;
                         a.key = a.query + hidden;
                         a.value = a.key + hidden;
                         a.context = context_base + row * hidden + column;
                         a.log_sum_exp = lse_base + head * tokens + row;
                       });
    });
    context->save_for_backward({qkv, lse});
    hold(context, std::move(call));
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &lse = saved[1];
    const at::Tensor dy = outputs[0].contiguous();
    const int64_t tokens = qkv.size(0), hidden = qkv.size(1) / 3;
    at::Tensor gradient = at::empty_like(qkv);
    dispatch(qkv, "attention", [&](auto zero) {
      using T = decltype(zero);
      const T *const base = qkv.data_ptr<T>(), *const dy_base = dy.data_ptr<T>();
      T *const gradient_base = gradient.data_ptr<T>(), *const lse_base = lse.data_ptr<T>();
      for_each_head<T>(held<AttentionCall>(context), hidden, kernels<T>().attention_backward,
                       [&](AttentionArguments<T>& a, int64_t row, int64_t column, int64_t head) {
                         a.query = base + row * 3 * hidden + column;
                         a.key = a.query + hidden;
                         a.value = a.key + hidden;
                         a.query_gradient = gradient_base + row * 3 * hidden + column;
                         a.key_gradient = a.query_gradient + hidden;
                         a.value_gradient = a.key_gradient + hidden;
                         a.context_gradient = dy_base + row * hidden + column;
                         a.log_sum_exp = lse_base + head * tokens + row;
                       });
    });
    return {gradient, {}};
  }
};

// ---- residual + dropout + layer norm
// --------------------------------------------------------------------------------

struct NormCall {
  double epsilon = 0;
  DropoutArguments dropout;
  at::Tensor positions, draws;
  bool has_residual = false;
};

template <class T>
NormArguments<T> norm_arguments(const NormCall& call, const at::Tensor& gamma, const at::Tensor& beta,
                                int64_t width) {
  NormArguments<T> a;
  a.width = width;
  a.gamma = gamma.data_ptr<T>();
  a.beta = data_or_null<T>(beta);
  a.epsilon = call.epsilon;
  a.dropout = call.dropout;
  a.positions = call.positions.data_ptr<int32_t>();
  a.draws = call.draws.data_ptr<int64_t>();
  return a;
}

struct NormResult {
  at::Tensor output, sum, mean, inverse_deviation;
};

NormResult norm_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call) {
  const int64_t rows = x.size(0), width = x.size(1);
  NormResult result{at::empty_like(x), at::empty_like(x), at::empty({rows}, x.options()),
                    at::empty({rows}, x.options())};
  dispatch(x, "layer norm", [&](auto zero) {
    using T = decltype(zero);
    NormArguments<T> base = norm_arguments<T>(call, gamma, beta, width);
    base.input = x.data_ptr<T>();
    base.bias = data_or_null<T>(bias);
    base.residual = data_or_null<T>(residual);
    base.sum = result.sum.data_ptr<T>();
    base.mean = result.mean.data_ptr<T>();
    base.inverse_deviation = result.inverse_deviation.data_ptr<T>();
    base.output = result.output.data_ptr<T>();
    const RowBlocks blocks(rows);
    for_each_block(blocks, [&](int64_t b) {
      NormArguments<T> a = base;
      a.begin = blocks.begin(b);
      a.end = blocks.end(b);
      kernels<T>().norm_forward(a);
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
  const int64_t rows = dy.size(0), width = dy.size(1);
  NormGradients gradients;
  gradients.residual = at::empty_like(dy);
  gradients.input = call.dropout.threshold != 0 ? at::empty_like(dy) : gradients.residual;
  const at::Tensor bias_gradient = gradient_of(bias), gamma_gradient = gradient_of(gamma),
                   beta_gradient = gradient_of(beta);
  dispatch(dy, "layer norm", [&](auto zero) {
    using T = decltype(zero);
    NormArguments<T> base = norm_arguments<T>(call, gamma, beta, width);
    base.sum = saved.sum.data_ptr<T>();
    base.mean = saved.mean.data_ptr<T>();
    base.inverse_deviation = saved.inverse_deviation.data_ptr<T>();
    base.output_gradient = dy.data_ptr<T>();
    base.residual_gradient = gradients.residual.data_ptr<T>();
    base.input_gradient = gradients.input.data_ptr<T>();
    const RowBlocks blocks(rows);
    const at::Tensor partial = at::zeros({3, blocks.count(), width}, dy.options());
    T* const sums = partial.data_ptr<T>();
    const int64_t plane = blocks.count() * width;
    for_each_block(blocks, [&](int64_t b) {
      NormArguments<T> a = base;
      a.begin = blocks.begin(b);
      a.end = blocks.end(b);
      a.gamma_gradient = sums + b * width;
      a.beta_gradient = sums + plane + b * width;
      a.bias_gradient = bias_gradient.defined() ? sums + 2 * plane + b * width : nullptr;
      kernels<T>().norm_backward(a);
    });
    const auto collect = [&](const at::Tensor& target, int64_t index) {
      if (target.defined())
        kernels<T>().column_sum(0, blocks.count(), width, sums + index * plane,
                                target.template data_ptr<T>());
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
// -----------------------------------------------------------------------------------------------------

template <class T>
EmbeddingArguments<T> embedding_arguments(const at::Tensor& ids, const at::Tensor& types,
                                          const NormCall& call, const at::Tensor& rows) {
  EmbeddingArguments<T> a;
  a.width = rows.size(1);
  a.ids = ids.data_ptr<int64_t>();
  a.types = types.data_ptr<int64_t>();
  a.positions = call.positions.data_ptr<int32_t>();
  a.rows = rows.data_ptr<T>();
  return a;
}

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
  dispatch(in, "dropout", [&](auto zero) {
    using T = decltype(zero);
    const RowBlocks blocks(in.size(0));
    for_each_block(blocks, [&](int64_t b) {
      kernels<T>().dropout_rows(blocks.begin(b), blocks.end(b), in.size(1), in.data_ptr<T>(),
                                out.data_ptr<T>(), positions.data_ptr<int32_t>(), draws.data_ptr<int64_t>(),
                                arguments);
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
  static at::Tensor forward(AutogradContext* context, const at::Tensor& word, const at::Tensor& position,
                            const at::Tensor& type, const at::Tensor& gamma, const at::Tensor& beta,
                            Call call) {
    const at::Tensor rows = at::empty({call.ids.size(0), word.size(1)}, word.options());
    dispatch(word, "embeddings", [&](auto zero) {
      using T = decltype(zero);
      EmbeddingArguments<T> base = embedding_arguments<T>(call.ids, call.types, call.norm, rows);
      base.word = word.data_ptr<T>();
      base.position = position.data_ptr<T>();
      base.type = type.data_ptr<T>();
      const RowBlocks blocks(rows.size(0));
      for_each_block(blocks, [&](int64_t b) {
        EmbeddingArguments<T> a = base;
        a.begin = blocks.begin(b);
        a.end = blocks.end(b);
        kernels<T>().embedding_rows(a);
      });
    });
    const NormResult result = norm_forward(rows, {}, {}, gamma, beta, call.norm);
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
    const at::Tensor word = gradient_of(saved[3]), position = gradient_of(saved[4]),
                     type = gradient_of(saved[5]);
    dispatch(rows, "embeddings", [&](auto zero) {
      using T = decltype(zero);
      EmbeddingArguments<T> base = embedding_arguments<T>(call.ids, call.types, call.norm, rows);
      base.padding = call.padding;
      base.word_gradient = data_or_null<T>(word);
      base.position_gradient = data_or_null<T>(position);
      base.type_gradient = data_or_null<T>(type);
      at::parallel_for(0, rows.size(1), 64, [&](int64_t first, int64_t last) {
        EmbeddingArguments<T> a = base;
        a.begin = first;
        a.end = last;
        kernels<T>().embedding_scatter(a, rows.size(0));
      });
    });
    return {{}, {}, {}, {}, {}, {}};
  }
};

// ---- dropout
// --------------------------------------------------------------------------------------------------------

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
// -----------------------------------------------------------------------------------------

constexpr int64_t kLogitRows = 256;  // rows of logits held at a time

struct VocabularyLossFunction : Function<VocabularyLossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& labels, bool gradients) {
    const int64_t rows = hidden.size(0), words = weight.size(0);
    const at::Tensor losses = at::zeros({rows}, at::kDouble);
    at::Tensor hidden_gradient, weight_gradient, bias_gradient;
    if (gradients) {
      hidden_gradient = at::empty_like(hidden);
      weight_gradient = at::zeros_like(weight);
      bias_gradient = at::zeros_like(bias);
    }
    for (int64_t begin = 0; begin < rows; begin += kLogitRows) {
      const int64_t count = std::min(kLogitRows, rows - begin);
      const at::Tensor part = hidden.narrow(0, begin, count);
      const at::Tensor logits = at::addmm(bias, part, weight.t());
      dispatch(logits, "cross-entropy", [&](auto zero) {
        using T = decltype(zero);
        at::parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
          kernels<T>().cross_entropy_rows(first, last, words, logits.data_ptr<T>(),
                                          labels.data_ptr<int64_t>() + begin,
                                          losses.data_ptr<double>() + begin, gradients);
        });
      });
      if (!gradients) continue;
      at::Tensor part_gradient = hidden_gradient.narrow(0, begin, count);
      at::mm_out(part_gradient, logits, weight);
      weight_gradient.addmm_(logits.t(), part);
      add_column_sum(logits, bias_gradient);
    }
    if (gradients)
      context->save_for_backward({weight, bias, hidden_gradient, weight_gradient, bias_gradient});
    double sum = 0;  // in the order of the rows
    for (int64_t r = 0; r < rows; ++r) sum += losses.data_ptr<double>()[r];
    return at::scalar_tensor(sum, hidden.options());
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const double factor = outputs[0].item<double>();
    if (const at::Tensor gradient = gradient_of(saved[0]); gradient.defined())
      gradient.add_(saved[3], factor);
    if (const at::Tensor gradient = gradient_of(saved[1]); gradient.defined())
      gradient.add_(saved[4], factor);
    return {context->needs_input_grad(0) ? saved[2] * factor : at::Tensor(), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return LinearFunction::apply(x, weight, maybe(bias));
}

at::Tensor attention(const at::Tensor& qkv, const Packing& packing, int64_t heads,
                     const DropoutSite& dropout) {
  return AttentionFunction::apply(qkv, AttentionCall{packing.host_offsets, packing.host_draw_ids, heads,
                                                     dropout_arguments(dropout, packing.random)});
}

at::Tensor residual_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                         const NormWeights& norm, const Packing& packing, const DropoutSite& dropout) {
  return ResidualNormFunction::apply(x, maybe(bias), maybe(residual), norm.gamma, norm.beta,
                                     NormCall{norm.epsilon, dropout_arguments(dropout, packing.random),
                                              packing.positions, packing.token_draws, residual.defined()});
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
