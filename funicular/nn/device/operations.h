#pragma once
// Activations, normalisation, embeddings and attention of tensors on a GPU, by kernels for teams of threads;
// nn/row_operations.h and nn/packed_attention.h call them.

#include <ATen/core/Tensor.h>

#include <vector>

#include "funicular/nn/packed_attention.h"
#include "funicular/nn/row_operations.h"

namespace funicular::nn::device {

at::Tensor activate(const at::Tensor& x, const at::Tensor& bias, Activation activation);
void activate_backward(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                       const at::Tensor& dy, const at::Tensor& y, const at::Tensor& bias_gradient);
NormResult norm_forward(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& gamma, const at::Tensor& beta, const NormCall& call);
NormResult embed_forward(const LookedUp& rows, const at::Tensor& gamma, const at::Tensor& beta,
                         const NormCall& call);
NormGradients norm_backward(const at::Tensor& dy, const NormResult& saved, const at::Tensor& gamma,
                            const at::Tensor& beta, const NormCall& call, const NormVectors& gradients);
/// As nn::gated(). gated_backward returns the gradient of x, and adds its column sums to bias_gradient if that is
/// defined.
at::Tensor gated_forward(const at::Tensor& x, const at::Tensor& bias, Activation activation);
at::Tensor gated_backward(const at::Tensor& x, const at::Tensor& bias, Activation activation,
                          const at::Tensor& dy, const at::Tensor& bias_gradient);
void drop_rows(const at::Tensor& in, const at::Tensor& out, const at::Tensor& positions,
               const at::Tensor& draws, const DropoutArguments& arguments);
void scatter_rows(const at::Tensor& gradient, const at::Tensor& ids, int64_t padding, const at::Tensor& rows);
void add_column_sum(const at::Tensor& x, const at::Tensor& target);
struct JoinCall {
  at::Tensor bias = {};  ///< [3H], added; or undefined
  /// As in AttentionPattern; or undefined. Half a head is a multiple of 8 channels.
  at::Tensor rotations = {};
  at::Tensor positions = {};  ///< [T] int32, of the rows; read with rotations
  int64_t head_size = 0;
  bool back = false;  ///< turned by the negative angles
  at::Tensor bias_gradient =
      {};  ///< [3H], to which the sum over the rows of the result is added; or undefined
};
/// out = the parts [T, H] of queries, keys and values side by side, which have one stride of rows. Undefined parts, and
/// parts beyond the list, are left out; then there must be no bias_gradient.
void join_parts(const std::vector<at::Tensor>& parts, const at::Tensor& out, const JoinCall& call = {});
/// Uses LibTorch's operations, and inverts the cumulative sum over the vocabulary.
void sample_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms,
                 const at::Tensor& tokens, const at::Tensor& best);
void cross_entropy_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                        const at::Tensor& losses, bool gradients);

bool takes_biased(const at::Tensor& x, int64_t width_of_qkv, const AttentionCall& call);
AttentionResult attend(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call);
at::Tensor attend_backward(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& saved,
                           const at::Tensor& dy, const AttentionCall& call, const at::Tensor& bias_gradient);

}  // namespace funicular::nn::device
