#pragma once
// The operations of nn/functional.h on slices of weights (core/slicing.h). Source: Shoeybi et al., "Megatron-LM",
// 2019, section 3. For rows divided between the slices: Korthikanti et al., "Reducing Activation Recomputation in
// Large Transformer Models", 2022, section 4.2.2.
//
// A layer whose outputs are cut is followed by one whose inputs are cut. Before the first layer the input enters the
// slices: it is the same on all ranks, and backward adds up its gradients. After the second layer the results are
// added up, since each rank has a part of the sum. In between, each rank has its own heads or channels.
//
// If the weights are whole (Slicing::group() is null), all of these do nothing.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "funicular/core/slicing.h"
#include "funicular/nn/functional.h"

namespace funicular::nn {

/// The rows that each rank has between the slices: [bounds[r], bounds[r + 1]). [ranks + 1], ascending; empty: each
/// rank has all.
using RowBounds = std::vector<int64_t>;

/// x [N, H], the same on all ranks → [N, H]. With `bounds`, x has a rank's own rows, and the result all rows.
/// Backward adds the gradients up; with `bounds`, for own rows only.
at::Tensor enter_slices(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds = {});
/// A rank's part of a sum [N, H] → the sum; with `bounds`, own rows of the sum. `part` may be overwritten. Backward
/// passes the gradient on; with `bounds`, it gathers all rows first.
at::Tensor leave_slices(const at::Tensor& part, const Slicing& slicing, const RowBounds& bounds = {});
/// x, whose gradient only the first rank passes on. Use it for what lies beside a branch if its gradients are added
/// up over the ranks together with the branch's.
at::Tensor once(const at::Tensor& x, const Slicing& slicing);
/// x [N, H], the same on all ranks → own rows. Backward gathers the ranks' gradients.
at::Tensor own_rows(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds);
/// The inverse of own_rows: own rows → all. The gradient of all rows must be the same on all ranks; backward takes
/// own rows.
at::Tensor all_rows(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds);

/// x [N, P · own] → [N, P · size], the same on all ranks. There are P = `parts` blocks of `size` columns, cut in
/// units, and x has a rank's own columns of each block. All ranks must compute the same from the result: backward
/// takes own columns of its gradient, without a sum over the ranks. Collective.
at::Tensor all_columns(const at::Tensor& x, const Slicing& slicing, int64_t size, int64_t unit,
                       int64_t parts = 1);

/// nn::attention of some of a model's heads, side by side: qkv [T, 3 · count · head size], the queries of all heads
/// first. Dropout drops the units that it would drop in the whole.
struct HeadSlice {
  int64_t first = 0, count = 0;
};
at::Tensor attention_of_heads(const at::Tensor& qkv, const at::Tensor& bias, const Packing& packing,
                              const HeadSlice& heads, const DropoutSite& dropout,
                              const std::optional<RowSubset>& queries = {}, bool repeatable = false,
                              const AttentionPattern& pattern = {});

/// attention_of_heads of x * weight^T, and x. For FlashAttention of heads that are not turned, the product adds the bias,
/// rounded to the type of x.
Branch attention_branch(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        const Packing& packing, const HeadSlice& heads, const DropoutSite& dropout,
                        const std::optional<RowSubset>& queries = {}, bool repeatable = false,
                        const AttentionPattern& pattern = {});

/// A rank's words: rows [first, first + rows of its table or bias) of a vocabulary of `whole`.
struct VocabularySlice {
  int64_t first = 0, whole = 0;
  const SliceGroup* group = nullptr;
};

/// nn::embed with a slice of the word table; position and type tables are whole. The words' rows are added up over
/// the ranks, each of which has some: T · H elements. Gives the whole [T, H] on every rank, and takes the whole
/// gradient.
at::Tensor embed(const EmbeddingTables& tables, const VocabularySlice& words,
                 std::shared_ptr<const SliceGroup> group, const at::Tensor& ids, const at::Tensor& types,
                 const NormWeights& norm, const Packing& packing, const DropoutSite& dropout);

/// nn::vocabulary_cross_entropy with slices of weight and bias. Every rank gets the same loss, with the gradient of
/// its own logits (so `hidden` must have entered the slices). Every rank tells two doubles per row: the log-sum-exp of
/// its words, and the label's logit or 0. With `draw`, every rank
/// gets the same tokens, drawn from the whole vocabulary.
at::Tensor vocabulary_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& bias, const at::Tensor& labels,
                                    const VocabularySlice& slice, VocabularyDraw* draw = nullptr);

/// cross_entropy_rows (nn/row_operations.h) with a slice of the logits. Labels and losses refer to the whole
/// vocabulary. The logits become this rank's part of softmax - onehot.
void sliced_cross_entropy_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                               const at::Tensor& losses, bool gradients, const VocabularySlice& slice);

/// sample_rows (nn/row_operations.h) with a slice of the logits: tokens of the whole vocabulary, the same on every
/// rank. Collective. First every rank tells two doubles per row: the log-sum-exp of its words and their greatest logit.
/// Then two tokens per row are added up.
void sliced_sample_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms,
                        const at::Tensor& tokens, const at::Tensor& best, const VocabularySlice& slice);

}  // namespace funicular::nn
