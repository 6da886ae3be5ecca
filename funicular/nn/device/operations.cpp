#include "funicular/nn/device/operations.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sort.h>

#include "funicular/nn/device/activation.h"
#include "funicular/nn/device/column_sum.h"
#include "funicular/nn/device/join.h"
#include "funicular/nn/device/launches.h"
#include "funicular/nn/device/norm.h"
#include "funicular/nn/device/row_kernels.h"
#include "funicular/nn/device/scatter.h"
#include "funicular/nn/norm_arguments.h"
#include "funicular/nn/typed.h"
#include "funicular/runtime/device_kernels.h"
#include "funicular/runtime/gpu_cards.h"

namespace funicular::nn::device {

namespace {

/// Rows are summed in blocks that depend on their number alone: at most 512, enough for every GPU.
struct Blocks {
  int64_t size, count;
  explicit Blocks(int64_t rows)
      : size(std::max<int64_t>(8, ceiling(rows, 512))), count(ceiling(rows, size)) {}
};

/// Each group of a team handles one row of x.
template <class S, template <class> class Kernel>
void run_rows(const at::Tensor& x, const Kernel<S>& kernel) {
  const int64_t bytes = RowMemory<S>::bytes(x.size(1), Kernel<S>::kCopies);
  const auto [count, groups] = funicular::device::grouped_team(x, bytes);
  funicular::device::check_shared_bytes(x, groups * bytes);
  run(x, {.rows = ceiling(x.size(0), groups), .threads = count, .shared_bytes = groups * bytes}, kernel);
}

/// Returns [sums, blocks, width], not yet written: the partial sums of each block of x's rows, for a kernel to write.
at::Tensor partial_sums(const at::Tensor& x, int64_t sums, const Blocks& blocks, int64_t width) {
  return at::empty({sums, blocks.count, width}, sums_of(x));
}

/// Adds to the gradients of gamma, beta and bias.
template <class S>
void learn_vectors(NormArguments<S> a, const at::Tensor& dy, const NormVectors& vectors) {
  using T = Compute<S>;
  if (!vectors.gamma.defined() && !vectors.beta.defined() && !vectors.bias.defined()) return;
  const Blocks blocks(a.end);
  const at::Tensor partial = partial_sums(dy, 3, blocks, a.width);
  a.gamma_gradient = data<T>(partial[0]);
  a.beta_gradient = data<T>(partial[1]);
  a.bias_gradient = vectors.bias.defined() ? data<T>(partial[2]) : nullptr;
  const int team = threads(dy, ceiling(a.width, kPack), 128);
  run(dy, {.rows = blocks.count, .columns = ceiling(a.width, team * kPack), .threads = team},
      NormVectorGradients<S>{a, blocks.size});
  collect(partial, {vectors.gamma, vectors.beta, vectors.bias});
}

template <class S>
ActivationArguments<S> activation_arguments(const at::Tensor& x, const at::Tensor& bias,
                                            Activation activation) {
  ActivationArguments<S> a;
  a.activation = activation;
  a.end = x.size(0);
  a.width = x.size(1);
  a.input = data<S>(x);
  a.bias = data<Compute<S>>(bias);
  return a;
}

}  // namespace

void collect(const at::Tensor& partial, const std::vector<at::Tensor>& targets) {
  dispatch(partial, "column sum", [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, Compute<T>>) {
      CollectSums<T> kernel;
      kernel.blocks = partial.size(1);
      kernel.width = partial.size(2);
      kernel.partial = data<T>(partial);
      for (size_t i = 0; i < targets.size(); ++i) kernel.targets[i] = data<T>(targets[i]);
      run(partial,
          {.rows = static_cast<int64_t>(targets.size()),
           .columns = ceiling(kernel.width, kernel.kColumns),
           .threads = threads(partial, kernel.kColumns * kernel.kGroups, 512),
           .shared_bytes = kernel.kSharedBytes},
          kernel);
    }
  });
}

at::Tensor activate(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  const at::Tensor y = at::empty_like(x);
  dispatch(x, "activation", [&](auto zero) {
    using S = decltype(zero);
    ActivationArguments<S> a = activation_arguments<S>(x, bias, activation);
    a.output = data<S>(y);
    run(x, {.rows = x.size(0), .threads = threads(x, ceiling(x.size(1), kPack))}, ActivationForward<S>{a});
  });
  return y;
}

void activate_backward(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                       const at::Tensor& dy, const at::Tensor& y, const at::Tensor& bias_gradient) {
  dispatch(x, "activation", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    const Blocks blocks(x.size(0));
    const at::Tensor partial = bias_gradient.defined() ? partial_sums(x, 1, blocks, x.size(1)) : at::Tensor();
    ActivationArguments<S> a = activation_arguments<S>(x, bias, activation);
    a.output = data<S>(y);
    a.output_gradient = a.input_gradient = data<S>(dy);
    a.bias_gradient = data<T>(partial);
    const int team = threads(x, ceiling(x.size(1), kPack), 128);
    run(x, {.rows = blocks.count, .columns = ceiling(x.size(1), team * kPack), .threads = team},
        ActivationBackward<S>{a, blocks.size});
    if (partial.defined()) collect(partial, {bias_gradient});
  });
}

NormResult norm_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call) {
  const NormResult result = norm_result(x, x.size(0));
  dispatch(x, "layer norm", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    NormArguments<S> a = norm_arguments<S>(call, gamma, beta, x.size(1));
    a.end = x.size(0);
    a.input = data<S>(x);
    a.bias = data<T>(bias);
    a.residual = data<S>(residual);
    write_to(result, a);
    run_rows(x, NormForward<S>{a});
  });
  return result;
}

NormResult embed_forward(const LookedUp& rows, const at::Tensor& gamma, const at::Tensor& beta,
                         const NormCall& call) {
  const NormResult result = norm_result(rows.word, rows.ids.size(0));
  dispatch(rows.word, "embeddings", [&](auto zero) {
    using S = decltype(zero);
    EmbeddingArguments<S> e = embedding_arguments<S>(rows, gamma, beta, call, result);
    e.norm.end = result.sum.size(0);
    run_rows(result.sum, EmbeddingNorm<S>{e});
  });
  return result;
}

NormGradients norm_backward(const at::Tensor& output_gradient, const NormResult& saved,
                            const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call,
                            const NormVectors& vectors) {
  // Applies dropout once for both kernels: the second goes down columns, where a row's decisions do not come
  // together.
  at::Tensor dy = output_gradient;
  if (call.output_dropout.threshold != 0) {
    dy = at::empty_like(output_gradient);
    nn::device::drop_rows(output_gradient, dy, call.positions, call.draws, call.output_dropout);
  }
  NormGradients gradients;
  gradients.residual = at::empty_like(dy);
  gradients.input = call.dropout.threshold != 0 ? at::empty_like(dy) : gradients.residual;
  dispatch(dy, "layer norm", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    NormArguments<S> a = norm_arguments<S>(call, gamma, beta, dy.size(1));
    a.end = dy.size(0);
    a.sum = data<S>(saved.sum);
    a.mean = data<T>(saved.mean);
    a.inverse_deviation = data<T>(saved.inverse_deviation);
    a.output_gradient = data<S>(dy);
    a.residual_gradient = data<S>(gradients.residual);
    a.input_gradient = data<S>(gradients.input);
    run_rows(dy, NormBackward<S>{a});
    learn_vectors(a, dy, vectors);
  });
  return gradients;
}

void drop_rows(const at::Tensor& in, const at::Tensor& out, const at::Tensor& positions,
               const at::Tensor& draws, const DropoutArguments& arguments) {
  dispatch(in, "dropout", [&](auto zero) {
    using S = decltype(zero);
    run_rows(in, DropoutRows<S>{in.size(0), in.size(1), data<S>(in), data<S>(out),
                                positions.data_ptr<int32_t>(), draws.data_ptr<int64_t>(), arguments});
  });
}

void scatter_rows(const at::Tensor& gradient, const at::Tensor& ids, int64_t padding,
                  const at::Tensor& rows) {
  const auto [sorted, order] = at::sort(ids.to(at::kLong), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  dispatch(rows, "embeddings", [&](auto zero) {
    using S = decltype(zero);
    const auto scatter = [&](auto* target) {
      using Target = std::remove_pointer_t<decltype(target)>;
      ScatterArguments<S, Target> a;
      a.count = rows.size(0);
      a.width = rows.size(1);
      a.order = order.template const_data_ptr<int64_t>();
      a.ids = sorted.template const_data_ptr<int64_t>();
      a.padding = padding;
      a.rows = data<S>(rows);
      a.target = target;
      const int64_t chunks = ceiling(a.count, a.kChunk);
      const at::Tensor partial = at::empty({chunks, 2, a.width}, sums_of(rows));
      a.partial = data<Compute<S>>(partial);
      const int team = threads(rows, a.width);
      const Launch how{.rows = chunks, .columns = ceiling(a.width, team), .threads = team};
      run(rows, how, ScatterChunks<S, Target>{a});
      run(rows, how, ScatterSpans<S, Target>{a});
    };
    if (gradient.scalar_type() == rows.scalar_type())
      scatter(data<S>(gradient));
    else
      scatter(data<Compute<S>>(gradient));
  });
}

void add_column_sum(const at::Tensor& x, const at::Tensor& target) {
  dispatch(x, "column sum", [&](auto zero) {
    using S = decltype(zero);
    const Blocks blocks(x.size(0));
    const at::Tensor partial = partial_sums(x, 1, blocks, x.size(1));
    const int team = threads(x, x.size(1), 128);
    run(x, {.rows = blocks.count, .columns = ceiling(x.size(1), team), .threads = team},
        ColumnSum<S>{x.size(0), x.size(1), x.stride(0), blocks.size, data<S>(x), data<Compute<S>>(partial)});
    collect(partial, {target});
  });
}

void join_gradients(const std::vector<at::Tensor>& parts, const at::Tensor& gradient,
                    const at::Tensor& bias_gradient) {
  dispatch(gradient, "attention", [&](auto zero) {
    using S = decltype(zero);
    const Blocks blocks(gradient.size(0));
    const int64_t width = gradient.size(1) / 3;
    const at::Tensor partial =
        bias_gradient.defined() ? partial_sums(gradient, 1, blocks, 3 * width) : at::Tensor();
    JoinGradients<S> kernel;
    kernel.rows = gradient.size(0);
    kernel.width = width;
    kernel.block_rows = blocks.size;
    for (size_t i = 0; i < parts.size(); ++i) {
      TORCH_INTERNAL_ASSERT(parts[i].is_contiguous());
      kernel.parts[i] = data<S>(parts[i]);
    }
    kernel.out = data<S>(gradient);
    kernel.partial = data<Compute<S>>(partial);
    const int64_t packs = 3 * ceiling(width, kPack);
    const int team = threads(gradient, packs, 128);
    run(gradient, {.rows = blocks.count, .columns = ceiling(packs, team), .threads = team}, kernel);
    if (partial.defined()) collect(partial, {bias_gradient});
  });
}

void sample_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms,
                 const at::Tensor& tokens, const at::Tensor& best) {
  const at::NoGradGuard no_gradient;
  const at::Tensor x = logits.to(bias.scalar_type()) + bias;
  const at::Tensor shares = at::softmax(x, -1).cumsum(-1, at::kDouble);
  const at::Tensor targets = uniforms.unsqueeze(1) * shares.narrow(1, shares.size(1) - 1, 1);
  const at::Tensor found = at::searchsorted(shares, targets, /*out_int32=*/false, /*right=*/true);
  tokens.copy_(found.squeeze(1).clamp_max(shares.size(1) - 1));
  if (best.defined()) best.copy_(x.argmax(-1));
}

void cross_entropy_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                        const at::Tensor& losses, bool gradients) {
  dispatch(logits, "cross-entropy", [&](auto zero) {
    using S = decltype(zero);
    run(logits, {.rows = logits.size(0), .threads = threads(logits, logits.size(1), 512)},
        CrossEntropyRows<S>{logits.size(1), logits.stride(0), data<S>(logits), data<Compute<S>>(bias),
                            labels.data_ptr<int64_t>(), losses.data_ptr<double>(), gradients});
  });
}

}  // namespace funicular::nn::device
