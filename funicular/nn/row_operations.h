#pragma once
// The operations of nn/functional.h that go row by row, on tensors and without gradients being recorded: on
// the processor spread over threads (nn/kernels.h), on a GPU by the kernels of nn/device.

#include <ATen/core/Tensor.h>

#include "funicular/nn/kernels.h"

namespace funicular::nn {

/// Rows are cut into blocks that depend on their number alone, so that sums over rows do not depend on the
/// threads: so many rows each, at least 8, which makes 8, 16, ... 64 blocks of about 32 rows, or nearly as
/// many; most numbers of threads divide them evenly.
int64_t rows_of_a_block(int64_t rows);

/// activation(x + bias); the bias may be undefined. x [N, O], bias [O].
at::Tensor activate(const at::Tensor& x, const at::Tensor& bias, Activation activation);

/// dy becomes dx in place; adds to the bias's gradient if it is defined; writes activation(x + bias) to `y`
/// if that is defined.
void activate_backward(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                       const at::Tensor& dy, const at::Tensor& y, const at::Tensor& bias_gradient);

/// What a layer normalisation needs besides its input.
struct NormCall {
  double epsilon = 0;
  DropoutArguments dropout{};
  at::Tensor positions, draws;  ///< [rows] int32, int64; read where something is dropped
  bool has_residual = false;
  DropoutArguments output_dropout{};  ///< of embed_forward, and of its backward pass: of the output
};

struct NormResult {
  at::Tensor output;
  at::Tensor sum, mean, inverse_deviation;  ///< for the backward pass
};

/// What the normalisation of so many rows writes, of the type and width of `like`; not yet written.
NormResult norm_result(const at::Tensor& like, int64_t rows);

/// layer_norm(residual + dropout(x + bias)); bias and residual may be undefined.
NormResult norm_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call);

/// Tables [rows, H] and the rows of them that are added up.
struct LookedUp {
  at::Tensor word, position, type;
  at::Tensor ids, types;  ///< [T] int64
  at::Tensor positions;   ///< [T] int32
};
/// dropout(layer_norm(word[ids] + position[positions] + type[types])), with the `output_dropout` of `call`.
/// norm_backward goes back, to the gradient of the sum.
NormResult embed_forward(const LookedUp& rows, const at::Tensor& gamma, const at::Tensor& beta,
                         const NormCall& call);

struct NormGradients {
  at::Tensor residual, input;  ///< the same tensor where `dropout` drops nothing
};
/// Gradients that are added to, each if it is defined.
struct NormVectors {
  at::Tensor gamma, beta, bias;
};
NormGradients norm_backward(const at::Tensor& dy, const NormResult& saved, const at::Tensor& gamma,
                            const at::Tensor& beta, const NormCall& call, const NormVectors& gradients);

/// out[r] = keep ? in[r] * scale : 0; out may be in.
void drop_rows(const at::Tensor& in, const at::Tensor& out, const at::Tensor& positions,
               const at::Tensor& draws, const DropoutArguments& arguments);

/// gradient[ids[r]] += rows[r] for all r but those of id `padding`; ids int64 or int32. Rows of one id are
/// added up first, in their order: the result does not depend on the threads, and a gradient of few bits is
/// rounded once.
void scatter_rows(const at::Tensor& gradient, const at::Tensor& ids, int64_t padding, const at::Tensor& rows);

/// What scatter_rows would add to zeros of the table's shape and type, as a sparse tensor of the rows that
/// occur, ascending. On the CPU; ids int64.
at::Tensor sum_rows(const at::Tensor& table, const at::Tensor& ids, int64_t padding, const at::Tensor& rows);

/// target[c] += sum of rows of x.
void add_column_sum(const at::Tensor& x, const at::Tensor& target);

/// losses[r] = log(sum exp(x[r])) - x[r, label] of x = logits + bias, in float64; with `gradients` the logits
/// become softmax(x) - onehot(label).
void cross_entropy_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                        const at::Tensor& losses, bool gradients);

/// tokens[r] is drawn from softmax(logits[r] + bias), in the type of vectors, with uniforms[r] (float64 in
/// [0, 1)); best[r], if defined, becomes the most probable one. Both [rows] int64.
void sample_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms,
                 const at::Tensor& tokens, const at::Tensor& best);

}  // namespace funicular::nn
