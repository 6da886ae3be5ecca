#pragma once
// The row-by-row operations of nn/functional.h, on tensors and without recording gradients. On the processor they are
// spread over threads (nn/kernels.h). On a GPU the kernels of nn/device compute them.

#include <ATen/core/Tensor.h>

#include "funicular/nn/kernels.h"

namespace funicular::nn {

/// The rows of a block. They depend only on the number of rows, so that sums over rows do not depend on the threads.
/// There are 8, 16, … 64 blocks or nearly as many, so that most numbers of threads divide them evenly. Blocks have 8
/// to 32 rows, and more only if there are more than 2,048 rows.
int64_t rows_of_a_block(int64_t rows);

/// activation(x + bias); the bias may be undefined. x [N, O], bias [O].
at::Tensor activate(const at::Tensor& x, const at::Tensor& bias, Activation activation);

/// dy becomes dx in place; adds to the bias's gradient if it is defined; writes activation(x + bias) to `y`
/// if that is defined.
void activate_backward(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                       const at::Tensor& dy, const at::Tensor& y, const at::Tensor& bias_gradient);

/// The arguments of a layer normalisation besides its input.
struct NormCall {
  double epsilon = 0;
  DropoutArguments dropout{};
  at::Tensor positions, draws;  ///< [rows] int32, int64; read where something is dropped
  bool has_residual = false;
  DropoutArguments output_dropout{};  ///< of the output, in embed_forward and its backward pass
};

struct NormResult {
  at::Tensor output;
  at::Tensor sum, mean, inverse_deviation;  ///< for the backward pass
};

/// Allocates the results of a normalisation of so many rows, of the type and width of `like`; not yet written.
NormResult norm_result(const at::Tensor& like, int64_t rows);
/// Allocates the results of norm_forward(). If nothing is added to x and nothing dropped, the sum is x itself.
NormResult norm_result(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                       const NormCall& call);

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

/// gradient[ids[r]] += rows[r] for all r whose id is not `padding`; ids int64 or int32. Rows of one id are added up
/// first, in their order. So the result does not depend on the threads, and a 16-bit gradient is rounded once.
void scatter_rows(const at::Tensor& gradient, const at::Tensor& ids, int64_t padding, const at::Tensor& rows);

/// The result of scatter_rows on zeros of the table's shape and type, as a sparse tensor of the rows that occur,
/// ascending. On the CPU; ids int64.
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
