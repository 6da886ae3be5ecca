#include "funicular/nn/functional.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "funicular/core/deferred_gradients.h"
#include "funicular/core/gradient_squares.h"
#include "funicular/nn/function_support.h"
#include "funicular/nn/matmul.h"
#include "funicular/nn/packed_attention.h"
#include "funicular/nn/quantized.h"
#include "funicular/nn/row_operations.h"
#include "funicular/nn/slices.h"
#include "funicular/nn/typed.h"
#include "funicular/nn/weight_gradient.h"
#include "funicular/runtime/device_kernels.h"

namespace funicular::nn {

namespace {

using torch::autograd::Function;
using torch::autograd::variable_list;

/// An input that may be missing: Function::apply refuses undefined tensors.
using Maybe = std::optional<at::Tensor>;
Maybe maybe(const at::Tensor& tensor) {
  return tensor.defined() ? Maybe(tensor) : std::nullopt;
}

// ---- linear

/// The weight's gradient += dy^T * x, if it wants one; the first of a step is written. Later, where gradients are
/// deferred.
template <class Gradient, class Input>
void accumulate_weight_gradient(const at::Tensor& weight, const Gradient& dy, const Input& x) {
  if (!weight.requires_grad()) return;
  if (DeferredGradients* const deferred = DeferredGradients::current())
    return deferred->add(weight, [weight, dy, x] { accumulate_weight_gradient(weight, dy, x); });
  at::Tensor& gradient = dense_gradient(weight);
  const bool add = gradient.defined();
  if (!add) gradient = at::empty_like(weight);
  GradientSquares* const squares = GradientSquares::current();
  if (const auto sum = add_weight_gradient(gradient, dy, x, add, squares != nullptr))
    squares->set(gradient, *sum);
}

/// dy * weight, and what came back for the trunk, if anything did; undefined unless x wants it.
template <class Gradient>
at::Tensor input_gradient(AutogradContext* context, const Gradient& dy, const at::Tensor& weight,
                          at::Tensor trunk) {
  if (!context->needs_input_grad(0)) return {};
  return trunk.defined() ? add_times(std::move(trunk), dy, weight) : times(dy, weight);
}

// backward() takes LibTorch's own list of gradients by reference if it adds to one of them. A copy of the list would
// share the gradient, and add_times never adds in place to a shared tensor.

/// Gives x * weight^T, and x. Adds the bias, if there is one, and leaves its gradient to what comes next.
struct LinearFunction : Function<LinearFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                               const Maybe& bias) {
    context->set_materialize_grads(false);
    context->save_for_backward({x, weight});
    return {bias ? times_transposed(x, weight, *bias) : times_transposed(x, weight), x};
  }
  static variable_list backward(AutogradContext* context, variable_list& outputs) {
    if (!outputs[0].defined()) return {outputs[1], {}, {}};
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = outputs[0].contiguous();
    accumulate_weight_gradient(weight, dy, x);
    return {input_gradient(context, dy, weight, std::move(outputs[1])), {}, {}};
  }
};

// ---- bias + activation, and the two matrices around it

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
                      dx, {}, gradient_of(saved[1]));
    return {dx, {}, {}};
  }
};

/// Gives the two products with the activation between them, and x. If matrices may be Tiled, the inner activations
/// are. The activation is then computed while the first product's rows are in the caches.
struct FeedForwardFunction : Function<FeedForwardFunction> {
  static bool tiles(const at::Tensor& x, const at::Tensor& up, const at::Tensor& down) {
    return may_be_tiled(x, up.size(0)) && may_be_tiled(x.scalar_type(), down.size(0), up.size(0)) &&
           up.stride(1) == 1 && down.stride(1) == 1;
  }

  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& up,
                               const at::Tensor& bias, const at::Tensor& down, int64_t activation,
                               bool learns) {
    context->set_materialize_grads(false);
    context->saved_data["activation"] = activation;
    const auto kind = static_cast<Activation>(activation);
    if (tiles(x, up, down)) {
      Tiled inner;
      const Tiled activated = activated_product(x, up, bias, kind, learns ? &inner : nullptr);
      context->save_for_backward({x, up, bias, down, inner.squares});
      context->saved_data["tiled"] = true;
      return {times_transposed(activated, down), x};
    }
    context->saved_data["tiled"] = false;
    const at::Tensor inner = times_transposed(x, up);
    context->save_for_backward({x, up, bias, down, inner});
    return {times_transposed(activate(inner, bias, kind), down), x};
  }

  static variable_list backward(AutogradContext* context, variable_list& outputs) {
    if (!outputs[0].defined()) return {outputs[1], {}, {}, {}, {}, {}};
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &up = saved[1], &bias = saved[2], &down = saved[3], &inner = saved[4];
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    const at::Tensor dy = outputs[0].contiguous();
    if (context->saved_data["tiled"].toBool()) {
      ActivationGradient gradient =
          activation_gradient(dy, down, {inner, x.size(0)}, bias, activation, gradient_of(bias));
      accumulate_weight_gradient(down, dy, gradient.activated);
      gradient.activated = {};
      accumulate_weight_gradient(up, gradient.before, x);
      return {input_gradient(context, gradient.before, up, std::move(outputs[1])), {}, {}, {}, {}, {}};
    }
    const at::Tensor inner_gradient = times(dy, down);
    {
      const at::Tensor activated = at::empty_like(inner);
      activate_backward(inner, bias, activation, inner_gradient, activated, gradient_of(bias));
      accumulate_weight_gradient(down, dy, activated);
    }
    accumulate_weight_gradient(up, inner_gradient, x);
    return {input_gradient(context, inner_gradient, up, std::move(outputs[1])), {}, {}, {}, {}, {}};
  }
};

// ---- attention

struct AttentionFunction : Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, const at::Tensor& bias,
                            AttentionCall call) {
    const AttentionResult result = attend(qkv, bias, call);
    context->save_for_backward({result.biased.defined() ? result.biased : qkv, bias, result.log_sum_exp,
                                result.random_state,
                                backward_reads_context(qkv) ? result.context : at::Tensor()});
    save_value(context, std::move(call));
    return result.context;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor& bias = saved[1];
    return {attend_backward(saved[0], bias, {saved[4], saved[2], saved[3], {}}, outputs[0].contiguous(),
                            saved_value<AttentionCall>(context), gradient_of(bias)),
            {},
            {}};
  }
};

// ---- residual + dropout + layer norm

struct ResidualNormFunction : Function<ResidualNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Maybe& maybe_bias,
                            const Maybe& residual, const at::Tensor& gamma, const at::Tensor& beta,
                            NormCall call) {
    const at::Tensor bias = maybe_bias.value_or(at::Tensor());
    const NormResult result = norm_forward(x, bias, residual.value_or(at::Tensor()), gamma, beta, call);
    context->save_for_backward({result.sum, result.mean, result.inverse_deviation, bias, gamma, beta});
    save_value(context, std::move(call));
    return result.output;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const NormCall& call = saved_value<NormCall>(context);
    const NormGradients gradients =
        norm_backward(outputs[0].contiguous(), {{}, saved[0], saved[1], saved[2]}, saved[4], saved[5], call,
                      {gradient_of(saved[4]), gradient_of(saved[5]), gradient_of(saved[3])});
    return {gradients.input, {}, call.has_residual ? gradients.residual : at::Tensor(), {}, {}, {}};
  }
};

// ---- embeddings

struct EmbedFunction : Function<EmbedFunction> {
  struct Call {
    at::Tensor ids, types, positions;
    NormCall norm;
    int64_t padding, position_padding;
    bool row_gradients;
  };
  static at::Tensor forward(AutogradContext* context, const at::Tensor& word, const at::Tensor& position,
                            const at::Tensor& type, const at::Tensor& gamma, const at::Tensor& beta,
                            const Maybe& common, Call call) {
    const NormResult result =
        embed_forward({word, with_common(position, common), type, call.ids, call.types, call.positions},
                      gamma, beta, call.norm);
    context->save_for_backward({result.sum, result.mean, result.inverse_deviation, word, position, type,
                                gamma, beta, common.value_or(at::Tensor())});
    save_value(context, std::move(call));
    return result.output;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const Call& call = saved_value<Call>(context);
    const at::Tensor rows = gradient_of_embedded_rows(saved, outputs[0], call.norm);
    if (call.row_gradients && saved[3].requires_grad() && !saved[3].grad().defined())
      saved[3].mutable_grad() = sum_rows(saved[3], call.ids, call.padding, rows);
    else
      learn_rows(saved[3], call.ids, call.padding, rows);
    learn_rows(saved[4], call.positions, call.position_padding, rows);
    learn_rows(saved[5], call.types, -1, rows);
    learn_common(saved[8], rows);
    return {{}, {}, {}, {}, {}, {}, {}};
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
    save_value(context, std::move(call));
    return out;
  }
  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const Call& call = saved_value<Call>(context);
    const at::Tensor dy = outputs[0].contiguous();
    at::Tensor gradient = at::empty_like(dy);
    drop_rows(dy, gradient, call.positions, call.draws, call.dropout);
    return {gradient, {}};
  }
};

// ---- vocabulary cross-entropy

/// Computes the losses of some rows; with `gradients`, their logits become the gradients.
void row_losses(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                const at::Tensor& losses, bool gradients, const VocabularySlice* slice) {
  if (slice)
    sliced_cross_entropy_rows(logits, bias, labels, losses, gradients, *slice);
  else
    cross_entropy_rows(logits, bias, labels, losses, gradients);
}

/// The draws of the rows from `begin` on.
void draw_rows(const at::Tensor& logits, const at::Tensor& bias, const VocabularyDraw& draw, int64_t begin,
               const VocabularySlice* slice) {
  const auto part = [&](const at::Tensor& all) { return all.narrow(0, begin, logits.size(0)); };
  const at::Tensor best = draw.wants_best ? part(draw.best) : at::Tensor();
  if (slice)
    sliced_sample_rows(logits, bias, part(draw.uniforms), part(draw.tokens), best, *slice);
  else
    sample_rows(logits, bias, part(draw.uniforms), part(draw.tokens), best);
}

/// The number of rows whose logits are held together. A GPU gains more from fewer launches and larger products.
int64_t logit_rows(const at::Tensor& hidden) {
  return hidden.is_cuda() ? kLogitRowsOnGpu : kLogitRows;
}

/// [rows, words]. On a GPU each row begins at a multiple of 128 bytes, without which products take several times as
/// long.
at::Tensor logits_of(const at::Tensor& hidden, const at::Tensor& weight) {
  if (!funicular::device::takes(hidden)) return times_transposed(hidden, weight);
  constexpr int64_t kAligned = 64;
  const int64_t words = weight.size(0), stride = (words + kAligned - 1) / kAligned * kAligned;
  const at::Tensor rows = at::empty({hidden.size(0), stride}, hidden.options());
  at::Tensor logits = rows.narrow(1, 0, words);
  at::mm_out(logits, hidden, weight.t());
  // Tests run this on the processor. There oneDNN with AMX reads 16-bit columns in pairs. After an odd last column it
  // multiplies one more number by zero, and NaN times zero is NaN.
  if (rows.is_cpu()) rows.narrow(1, words, stride - words).zero_();
  return logits;
}

/// The last tile of logits becomes its own gradient and waits for the backward pass, which adds its product straight
/// to the weight's gradient. Very large batches have earlier tiles, too. Their products are added at once to a
/// separate sum in full precision, since several tiles are added and fp16 has no loss scale yet.
struct VocabularyLossFunction : Function<VocabularyLossFunction> {
  /// Returns values * factor, with the factor in full precision. On a GPU, reading the factor would wait for the
  /// device, and LibTorch would round a tensor of one number to the type of `values`.
  static at::Tensor scaled(const at::Tensor& values, const at::Tensor& factor) {
    if (values.is_cpu()) return values * factor.item<double>();
    return (values.to(factor.scalar_type()) * factor).to(values.scalar_type());
  }

  /// Adds up the losses; on the processor in the order of the rows.
  static at::Tensor total(const at::Tensor& losses) {
    if (!losses.is_cpu()) return losses.sum();
    double sum = 0;
    for (int64_t r = 0; r < losses.size(0); ++r) sum += losses.data_ptr<double>()[r];
    return at::scalar_tensor(sum, at::kDouble);
  }

  /// gradient += sum * factor, some rows at a time, since LibTorch copies a tensor to convert it. On a GPU the factor
  /// is not read.
  static void add_scaled(const at::Tensor& gradient, const at::Tensor& sum, const at::Tensor& factor) {
    for (int64_t begin = 0; begin < sum.size(0); begin += kLogitRows) {
      const int64_t count = std::min(kLogitRows, sum.size(0) - begin);
      const at::Tensor part = sum.narrow(0, begin, count), target = gradient.narrow(0, begin, count);
      if (sum.is_cpu())
        target.add_(part, factor.item<double>());
      else
        target.addcmul_(part, factor.to(part.scalar_type()));
    }
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& labels, bool gradients,
                            VocabularyDraw* draw, const VocabularySlice* slice) {
    const int64_t rows = hidden.size(0), tile = logit_rows(hidden);
    if (draw) draw->tokens = at::empty_like(labels);
    if (draw && draw->wants_best) draw->best = at::empty_like(labels);
    const at::Tensor losses = at::zeros({rows}, hidden.options().dtype(at::kDouble));
    at::Tensor logits, hidden_gradient, weight_sum, bias_sum;
    for (int64_t begin = 0; begin < rows; begin += tile) {
      const int64_t count = std::min(tile, rows - begin);
      const at::Tensor part = hidden.narrow(0, begin, count);
      logits = slice ? times_transposed(part, weight) : logits_of(part, weight);
      if (draw) draw_rows(logits, bias, *draw, begin, slice);
      row_losses(logits, bias, labels.narrow(0, begin, count), losses.narrow(0, begin, count), gradients,
                 slice);
      if (!gradients || begin + count == rows) continue;
      if (!weight_sum.defined()) {
        hidden_gradient = at::empty_like(hidden);
        weight_sum = at::zeros(weight.sizes(), weight.options().dtype(compute_type(weight)));
        bias_sum = at::zeros_like(bias);
      }
      times(logits, weight, hidden_gradient.narrow(0, begin, count));
      add_weight_gradient(weight_sum, logits, part);
      add_column_sum(logits, bias_sum);
    }
    if (gradients)
      context->save_for_backward({hidden, weight, bias, logits, hidden_gradient, weight_sum, bias_sum});
    return total(losses).to(compute_type(hidden));
  }

  static variable_list backward(AutogradContext* context, variable_list outputs) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1], &bias = saved[2], &logits = saved[3];
    const at::Tensor &weight_sum = saved[5], &bias_sum = saved[6];
    const at::Tensor& factor = outputs[0];
    const int64_t rows = hidden.size(0), last = logits.defined() ? logits.size(0) : 0;
    if (last == 0) return {at::zeros_like(hidden), {}, {}, {}, {}, {}, {}};
    accumulate_weight_gradient(weight, logits, scaled(hidden.narrow(0, rows - last, last), factor));
    if (weight_sum.defined())
      if (const at::Tensor gradient = gradient_of(weight); gradient.defined())
        add_scaled(gradient, weight_sum, factor);
    if (const at::Tensor gradient = gradient_of(bias); gradient.defined()) {
      const at::Tensor sum = bias_sum.defined() ? bias_sum : at::zeros_like(bias);
      add_column_sum(logits, sum);
      gradient.add_(scaled(sum, factor));
    }
    if (!context->needs_input_grad(0)) return {{}, {}, {}, {}, {}, {}, {}};
    at::Tensor hidden_gradient = saved[4].defined() ? saved[4] : at::empty_like(hidden);
    times(logits, weight, hidden_gradient.narrow(0, rows - last, last));
    return {scaled(hidden_gradient, factor), {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

Branch linear_branch(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  TORCH_INTERNAL_ASSERT(!is_quantized(weight) || !bias.defined());
  if (is_quantized(weight)) return {quantized_linear(x, weight), x};
  const variable_list both = LinearFunction::apply(x, weight, maybe(bias));
  return {both[0], both[1]};
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) {
  return linear_branch(x, weight).output;
}

at::Tensor bias_activation(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  return BiasActivationFunction::apply(x, bias, static_cast<int64_t>(activation));
}

Branch feed_forward_branch(const at::Tensor& x, const at::Tensor& up, const at::Tensor& bias,
                           const at::Tensor& down, Activation activation) {
  if (is_quantized(up)) return {quantized_feed_forward(x, up, bias, down, activation), x};
  const bool learns = at::GradMode::is_enabled() && (x.requires_grad() || up.requires_grad() ||
                                                     bias.requires_grad() || down.requires_grad());
  const variable_list both =
      FeedForwardFunction::apply(x, up, bias, down, static_cast<int64_t>(activation), learns);
  return {both[0], both[1]};
}

at::Tensor feed_forward(const at::Tensor& x, const at::Tensor& up, const at::Tensor& bias,
                        const at::Tensor& down, Activation activation) {
  return feed_forward_branch(x, up, bias, down, activation).output;
}

at::Tensor attention(const at::Tensor& qkv, const at::Tensor& bias, const Packing& packing, int64_t heads,
                     const DropoutSite& dropout, const std::optional<RowSubset>& queries, bool repeatable,
                     const AttentionPattern& pattern) {
  return attention_of_heads(qkv, bias, packing, {0, heads}, dropout, queries, repeatable, pattern);
}

at::Tensor residual_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                         const NormWeights& norm, const RowKeys& keys, const DropoutSite& dropout) {
  return ResidualNormFunction::apply(x, maybe(bias), maybe(residual), norm.gamma, norm.beta,
                                     NormCall{.epsilon = norm.epsilon,
                                              .dropout = dropout_arguments(dropout, keys.random),
                                              .positions = keys.positions,
                                              .draws = keys.draws,
                                              .has_residual = residual.defined()});
}

void check_ids(int64_t words, int64_t type_rows, const at::Tensor& ids, const at::Tensor& types) {
  check_rows(ids, words, "token id");
  check_rows(types, type_rows, "token type");
}

at::Tensor embed(const EmbeddingTables& tables, const at::Tensor& ids, const at::Tensor& types,
                 const NormWeights& norm, const Packing& packing, const DropoutSite& dropout) {
  if (ids.is_cpu()) check_ids(tables.word.size(0), tables.type.size(0), ids, types);
  const NormCall call{.epsilon = norm.epsilon,
                      .positions = packing.positions,
                      .draws = packing.token_draws,
                      .output_dropout = dropout_arguments(dropout, packing.random)};
  const at::Tensor& rows = tables.position_rows.defined() ? tables.position_rows : packing.positions;
  return EmbedFunction::apply(tables.word, tables.position, tables.type, norm.gamma, norm.beta,
                              maybe(tables.common),
                              EmbedFunction::Call{ids, types, rows, call, tables.padding,
                                                  tables.position_padding, tables.row_gradients});
}

at::Tensor dropout(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& draws,
                   const RandomState& random, const DropoutSite& site) {
  const DropoutArguments arguments = dropout_arguments(site, random);
  if (arguments.threshold == 0) return x;
  return DropoutFunction::apply(x.contiguous(), DropoutFunction::Call{positions, draws, arguments});
}

namespace {

bool learns_vocabulary(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias) {
  return at::GradMode::is_enabled() &&
         (hidden.requires_grad() || weight.requires_grad() || bias.requires_grad());
}

}  // namespace

at::Tensor vocabulary_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& bias, const at::Tensor& labels, VocabularyDraw* draw) {
  const VocabularySlice* const whole = nullptr;
  return VocabularyLossFunction::apply(hidden, weight, bias, labels, learns_vocabulary(hidden, weight, bias),
                                       draw, whole);
}

at::Tensor attention_of_heads(const at::Tensor& qkv, const at::Tensor& bias, const Packing& packing,
                              const HeadSlice& heads, const DropoutSite& dropout,
                              const std::optional<RowSubset>& queries, bool repeatable,
                              const AttentionPattern& pattern) {
  return AttentionFunction::apply(
      qkv, bias,
      AttentionCall{packing, heads.count, dropout_arguments(dropout, packing.random), queries, repeatable,
                    heads.first, pattern});
}

Branch attention_branch(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const Packing& packing, const HeadSlice& heads, const DropoutSite& dropout,
                        const std::optional<RowSubset>& queries, bool repeatable,
                        const AttentionPattern& pattern) {
  AttentionCall call{packing, heads.count, dropout_arguments(dropout, packing.random),
                     queries, repeatable,  heads.first,
                     pattern};
  call.biased = takes_biased(x, weight.size(0), call);
  const Branch projected = linear_branch(x, weight, call.biased ? bias.detach() : at::Tensor());
  return {AttentionFunction::apply(projected.output, bias, std::move(call)), projected.trunk};
}

at::Tensor vocabulary_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& bias, const at::Tensor& labels,
                                    const VocabularySlice& slice, VocabularyDraw* draw) {
  return VocabularyLossFunction::apply(hidden, weight, bias, labels, learns_vocabulary(hidden, weight, bias),
                                       draw, &slice);
}

}  // namespace funicular::nn
