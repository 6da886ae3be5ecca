#pragma once
// Multi-head self-attention of a packed batch on tensors, without gradients being recorded; see
// nn/functional.h.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "funicular/core/batch.h"
#include "funicular/nn/attention_pattern.h"
#include "funicular/nn/kernels.h"
#include "funicular/nn/row_subset.h"

namespace funicular::nn {

struct AttentionCall {
  Packing packing;
  int64_t heads = 1;
  DropoutArguments dropout;
  std::optional<RowSubset> queries;  ///< none: all rows
  bool repeatable = false;           ///< no FlashAttention of LibTorch's
  int64_t first_head = 0;            ///< which of the model's heads the first of these is, for its dropout
  AttentionPattern pattern = {};
  bool biased = false;  ///< qkv has its bias already, as takes_biased() asks

  int64_t score_products = 1;  ///< products of two vectors of the head size that are added up in a score
  /// Added to the scores before they are scaled: for each sequence a block [heads, rows that ask, tokens], in the type
  /// of sums. Undefined: nothing.
  at::Tensor score_terms = {};
  at::Tensor term_gradients = {};  ///< as score_terms, zeros: attend_backward adds

  /// The factor of the scores: 1 / sqrt(score_products * head_size).
  double scale(int64_t head_size) const;
  /// The begin of the block of each sequence in score_terms, and the end of the last one.
  std::vector<int64_t> term_blocks() const;
  int64_t rows() const { return queries ? queries->size() : packing.tokens(); }
  /// The first row of sequence s in a matrix with one row per query.
  int64_t first_row(int64_t s) const {
    return queries ? queries->offsets[static_cast<size_t>(s)] : packing.host_offsets[static_cast<size_t>(s)];
  }
};

struct AttentionResult {
  at::Tensor context;  ///< [R, H]
  /// Further input of the backward pass: [heads, R], of the scaled scores; on a GPU the dropout's state.
  at::Tensor log_sum_exp, random_state;
  at::Tensor biased;  ///< qkv + bias, which the backward pass reads instead of qkv; undefined: it reads qkv
};

/// Whether attend() had better get qkv with its bias, which the product of `x` can add: if FlashAttention computes, and
/// heads are not turned. A kernel that turns heads adds their bias.
bool takes_biased(const at::Tensor& x, int64_t width_of_qkv, const AttentionCall& call);

/// qkv [T, 3H] to which bias [3H] is added, unless call.biased.
AttentionResult attend(const at::Tensor& qkv, const at::Tensor& bias, const AttentionCall& call);

/// Whether attend_backward reads saved.context.
bool backward_reads_context(const at::Tensor& qkv);

/// The gradient of qkv + bias, [T, 3H]. If `bias_gradient` is defined, adds the sum over the rows to it. If attend
/// gave AttentionResult::biased, `qkv` must be that.
at::Tensor attend_backward(const at::Tensor& qkv, const at::Tensor& bias, const AttentionResult& saved,
                           const at::Tensor& dy, const AttentionCall& call, const at::Tensor& bias_gradient);

}  // namespace funicular::nn
