#include "funicular/nn/device/operations.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sort.h>

#include "funicular/nn/device/activation.h"
#include "funicular/nn/device/column_sum.h"
#include "funicular/nn/device/gated.h"
#include "funicular/nn/device/join.h"
#include "funicular/nn/device/launches.h"
#include "funicular/nn/device/norm.h"
#include "funicular/nn/device/row_kernels.h"
#include "funicular/nn/device/scatter.h"
#include "funicular/nn/kernel_arguments.h"
#include "funicular/nn/typed.h"
#include "funicular/runtime/device_kernels.h"

namespace funicular::nn::device {

namespace {

/// Rows are summed in blocks that depend on their number alone: at most `most`, enough for every GPU.
struct Blocks {
  int64_t size, count;
  explicit Blocks(int64_t rows, int64_t most = 512)
      : size(std::max<int64_t>(8, ceiling(rows, most))), count(ceiling(rows, size)) {}
};
/// A block of rows that are normalised has all columns. Rows of 768 channels have so many blocks on an A100 or H100 at
/// once, and rows of 1,024 on an H100. There, no block waits for another one to end.
constexpr int64_t kMostNormBlocks = 640;

/// Starts a kernel of norm.h on `blocks` teams, each with a block of x's rows.
template <class Kernel>
void run_rows(const at::Tensor& x, int64_t blocks, const Kernel& kernel) {
  const int64_t width = x.size(1), most = kThreadsOfRows * kPack;
  if (width > most && !funicular::device::runs_on_host(x))
    throw InputError("device",
                     "on a GPU a row that is normalised has at most {} channels, found {}; use --device cpu",
                     most, width);
  run(x,
      {.rows = blocks,
       .threads = threads(x, ceiling(width, kPack), kThreadsOfRows),
       .shared_bytes = 2 * units_of(width)},
      kernel);
}

/// Rows of a team in the forward pass, where nothing is added up over rows: enough teams for every GPU.
int64_t rows_of_team(int64_t rows) {
  return std::clamp<int64_t>(ceiling(rows, 1024), 1, 4);
}

/// Returns [sums, blocks, width], not yet written: the partial sums of each block of x's rows, for a kernel to write.
at::Tensor partial_sums(const at::Tensor& x, int64_t sums, const Blocks& blocks, int64_t width) {
  return at::empty({sums, blocks.count, width}, sums_of(x));
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

at::Tensor gated_forward(const at::Tensor& x, const at::Tensor& bias, Activation activation) {
  const int64_t width = x.size(1) / 2;
  const at::Tensor y = at::empty({x.size(0), width}, x.options().requires_grad(false));
  dispatch(x, "gate", [&](auto zero) {
    using S = decltype(zero);
    GatedArguments<S> a = gated_arguments<S>(x, bias, activation);
    a.output = data<S>(y);
    run(x, {.rows = a.end, .threads = threads(x, ceiling(width, kPack))}, GatedForward<S>{a});
  });
  return y;
}

at::Tensor gated_backward(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                          const at::Tensor& dy, const at::Tensor& bias_gradient) {
  const at::Tensor dx = at::empty_like(x);
  dispatch(x, "gate", [&](auto zero) {
    using S = decltype(zero);
    const Blocks blocks(x.size(0));
    const at::Tensor partial = bias_gradient.defined() ? partial_sums(x, 1, blocks, x.size(1)) : at::Tensor();
    GatedArguments<S> a = gated_arguments<S>(x, bias, activation);
    a.output_gradient = data<S>(dy);
    a.input_gradient = data<S>(dx);
    const int team = threads(x, ceiling(a.width, kPack), 128);
    run(x, {.rows = blocks.count, .columns = ceiling(a.width, team * kPack), .threads = team},
        GatedBackward<S>{a, blocks.size, data<Compute<S>>(partial)});
    if (partial.defined()) collect(partial, {bias_gradient});
  });
  return dx;
}

NormResult norm_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call) {
  const NormResult result = norm_result(x, bias, residual, call);
  dispatch(x, "layer norm", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    NormArguments<S> a = norm_arguments<S>(call, gamma, beta, x.size(1));
    a.end = x.size(0);
    a.input = data<S>(x);
    a.bias = data<T>(bias);
    a.residual = data<S>(residual);
    write_to(result, a);
    const int64_t block = rows_of_team(a.end);
    run_rows(x, ceiling(a.end, block), NormForward<S>{a, block});
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
    const int64_t block = rows_of_team(e.norm.end);
    run_rows(result.sum, ceiling(e.norm.end, block), EmbeddingNorm<S>{e, block});
  });
  return result;
}

NormGradients norm_backward(const at::Tensor& output_gradient, const NormResult& saved,
                            const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call,
                            const NormVectors& vectors) {
  NormGradients gradients;
  gradients.residual = at::empty_like(output_gradient);
  gradients.input = call.dropout.threshold != 0 ? at::empty_like(output_gradient) : gradients.residual;
  dispatch(output_gradient, "layer norm", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    NormArguments<S> a = norm_arguments<S>(call, gamma, beta, output_gradient.size(1));
    a.end = output_gradient.size(0);
    a.sum = data<S>(saved.sum);
    a.mean = data<T>(saved.mean);
    a.inverse_deviation = data<T>(saved.inverse_deviation);
    a.output_gradient = data<S>(output_gradient);
    a.residual_gradient = data<S>(gradients.residual);
    a.input_gradient = data<S>(gradients.input);
    const Blocks blocks(a.end, kMostNormBlocks);
    const at::Tensor partial = partial_sums(output_gradient, 3, blocks, a.width);
    if (vectors.gamma.defined()) a.gamma_gradient = data<T>(partial[0]);
    if (vectors.beta.defined()) a.beta_gradient = data<T>(partial[1]);
    if (vectors.bias.defined()) a.bias_gradient = data<T>(partial[2]);
    run_rows(output_gradient, blocks.count, NormBackward<S>{a, blocks.size});
    if (vectors.gamma.defined() || vectors.beta.defined() || vectors.bias.defined())
      collect(partial, {vectors.gamma, vectors.beta, vectors.bias});
  });
  return gradients;
}

void drop_rows(const at::Tensor& in, const at::Tensor& out, const at::Tensor& positions,
               const at::Tensor& draws, const DropoutArguments& arguments) {
  dispatch(in, "dropout", [&](auto zero) {
    using S = decltype(zero);
    run(in,
        {.rows = in.size(0),
         .threads = threads(in, ceiling(in.size(1), kPack)),
         .shared_bytes = units_of(in.size(1))},
        DropoutRows<S>{in.size(0), in.size(1), data<S>(in), data<S>(out), positions.data_ptr<int32_t>(),
                       draws.data_ptr<int64_t>(), arguments});
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

void join_parts(const std::vector<at::Tensor>& parts, const at::Tensor& out, const JoinCall& call) {
  dispatch(out, "attention", [&](auto zero) {
    using S = decltype(zero);
    using T = Compute<S>;
    JoinParts<S> kernel;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].defined()) continue;
      TORCH_INTERNAL_ASSERT(parts[i].stride(1) == 1);
      TORCH_INTERNAL_ASSERT(kernel.stride == 0 || kernel.stride == parts[i].stride(0));
      kernel.parts[i] = data<S>(parts[i]);
      kernel.stride = parts[i].stride(0);
      kernel.width = parts[i].size(1);
    }
    const Blocks blocks(out.size(0));
    const at::Tensor partial =
        call.bias_gradient.defined() ? partial_sums(out, 1, blocks, 3 * kernel.width) : at::Tensor();
    kernel.rows = out.size(0);
    kernel.block_rows = blocks.size;
    kernel.bias = data<T>(call.bias);
    kernel.rotations = data<T>(call.rotations);
    if (call.rotations.defined()) kernel.positions = call.positions.data_ptr<int32_t>();
    kernel.head_size = call.head_size;
    kernel.back = call.back;
    kernel.out = data<S>(out);
    kernel.out_stride = out.size(1);
    kernel.partial = data<T>(partial);
    const int64_t packs = 3 * ceiling(kernel.width, kPack);
    const int team = threads(out, packs, 128);
    run(out, {.rows = blocks.count, .columns = ceiling(packs, team), .threads = team}, kernel);
    if (partial.defined()) collect(partial, {call.bias_gradient});
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
