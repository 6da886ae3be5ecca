#pragma once
// The differentiable operations of packed BERT on tensors. Forward activations are [T, H]: T real tokens, no
// padding.
//
// While backward runs, gradients of weights are added straight to the weights' .grad (created if needed) instead of
// travelling through the graph. That saves a buffer of the weight's size and two passes over it.
// torch::autograd::grad therefore sees no gradients of weights; use backward().
//
// Activations and matrices share one type: float64, float32, bfloat16 or float16. Vectors (biases, normalisation) and
// their gradients are float64 if the matrices are, else float32. A matrix's .grad has the matrix's type or that of
// vectors.
//
// Results do not depend on the number of threads except through the matrix products of the BLAS.

#include <ATen/core/Tensor.h>

#include <optional>

#include "funicular/base/random.h"
#include "funicular/core/batch.h"
#include "funicular/nn/attention_pattern.h"
#include "funicular/nn/kernels.h"
#include "funicular/nn/row_subset.h"

namespace funicular::nn {

/// One place of the network where units are dropped. Active only if the packing says training and probability
/// > 0.
struct DropoutSite {
  double probability = 0;
  Purpose purpose = Purpose::user;
  uint32_t layer = 0;
};

/// x [N, I] * weight[O, I]^T → [N, O]. Here and in feed_forward the weights may be quantised
/// (nn/quantized.h).
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight);

/// A branch's output, and x itself. Use `trunk` for everything beside the branch, such as a residual connection.
/// Backward then adds the trunk's gradient within the branch's last product, without a separate pass.
struct Branch {
  at::Tensor output, trunk;
};
/// A `bias` [O] is added within the product, in the type of x, without a gradient of its own. A quantised weight takes
/// no bias.
Branch linear_branch(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// activation(x + bias). x [N, O], bias [O].
at::Tensor bias_activation(const at::Tensor& x, const at::Tensor& bias, Activation activation);

/// activation(x * up^T + bias) * down^T: x [N, H], up [I, H], bias [I], down [H, I] → [N, H]. Keeps x * up^T
/// only; the activation is computed again in backward, where it costs nothing beside its derivative.
at::Tensor feed_forward(const at::Tensor& x, const at::Tensor& up, const at::Tensor& bias,
                        const at::Tensor& down, Activation activation);
Branch feed_forward_branch(const at::Tensor& x, const at::Tensor& up, const at::Tensor& bias,
                           const at::Tensor& down, Activation activation);

/// Multi-head self-attention inside each sequence. qkv [T, 3H] holds queries, keys and values side by side,
/// to which bias [3H] is added → [T, H]. With `queries` only these R rows ask, of all tokens → [R, H]. On a GPU
/// 16 bits go to LibTorch's FlashAttention, unless `repeatable`. Its dropout mask is its own, and
/// its gradients differ in their last bits from run to run; see nn/device/attention_choice.h.
at::Tensor attention(const at::Tensor& qkv, const at::Tensor& bias, const Packing& packing, int64_t heads,
                     const DropoutSite& dropout, const std::optional<RowSubset>& queries = {},
                     bool repeatable = false, const AttentionPattern& pattern = {});

/// layer_norm(residual + dropout(x + bias)). x, residual [T, H]; the residual and bias may be undefined.
struct NormWeights {
  at::Tensor gamma, beta;  ///< [H]
  double epsilon = 1e-12;
};
at::Tensor residual_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                         const NormWeights& norm, const RowKeys& keys, const DropoutSite& dropout);

/// dropout(layer_norm(word[ids] + position[position_rows] + type[types])) → [T, H]; ids, types [T] int64. Throws as
/// check_ids does if ids and types lie on the CPU; the caller checks the length of sequences.
struct EmbeddingTables {
  at::Tensor word, position, type;  ///< [V, H], [P, H], [types, H]
  int64_t padding = -1;  ///< the row of `word` that gets no gradient, as in torch.nn.Embedding; -1: none
  bool row_gradients = false;  ///< the first gradient of `word` is sparse, see PassOptions::row_gradients
  /// [T] int32, the row of `position` of each token; undefined: its place in the sequence. The caller checks their
  /// range.
  at::Tensor position_rows = {};
  int64_t position_padding = -1;  ///< the row of `position` that gets no gradient
  at::Tensor common = {};  ///< [rows, H], whose first row is added to every token; undefined: there is none
};
at::Tensor embed(const EmbeddingTables& tables, const at::Tensor& ids, const at::Tensor& types,
                 const NormWeights& norm, const Packing& packing, const DropoutSite& dropout);

/// Throws InputError for an id outside [0, words) or a type outside [0, type_rows): a store may be damaged or belong to another model.
/// Without the check, it would be a wild read. Both tensors must be on the CPU.
void check_ids(int64_t words, int64_t type_rows, const at::Tensor& ids, const at::Tensor& types);

/// Dropout of rows [N, H] with the given keys: positions [N] int32, draws [N] int64.
at::Tensor dropout(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& draws,
                   const RandomState& random, const DropoutSite& site);

/// Rows of logits that are held at a time, on the processor and on a GPU.
inline constexpr int64_t kLogitRows = 512, kLogitRowsOnGpu = 4096;

/// Tokens drawn from the logits that the loss uses, without gradients, by inverse transform sampling at temperature
/// 1. A row's token is the first whose cumulative probability is above the row's uniform number. Probabilities are
/// computed in float64 if the matrices are float64, else in float32.
struct VocabularyDraw {
  at::Tensor uniforms;      ///< [M] float64 in [0, 1)
  bool wants_best = false;  ///< whether `best` is asked for
  at::Tensor tokens, best;  ///< [M] int64, results: the drawn tokens, and the most probable ones
};

/// Sum over rows of the softmax cross-entropy of hidden [M, H] * weight[V, H]^T + bias[V] against labels [M] int64.
/// Holds at most kLogitRows rows of logits (kLogitRowsOnGpu on a GPU); gradients are computed in the same pass. With
/// `draw`, tokens are drawn from the softmax.
at::Tensor vocabulary_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& bias, const at::Tensor& labels,
                                    VocabularyDraw* draw = nullptr);

}  // namespace funicular::nn
