#pragma once
// The operations of nn/functional.h on slices of weights (core/slicing.h): Shoeybi et al., "Megatron-LM", 2019, section
// 3; with rows divided between the slices Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
// Models", 2022, section 4.2.2.
//
// A layer whose outputs are cut is followed by one whose inputs are cut. Before the first the input enters the
// slices: it is the same on all ranks, and in backward its gradient is added up. After the second the results are
// added up: each rank has a part of the sum. What stands between is one rank's own: its heads, its channels.
//
// Where the weights are whole (Slicing::group() is null) all of these do nothing.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "funicular/core/slicing.h"
#include "funicular/nn/functional.h"

namespace funicular::nn {

/// Which rows each rank has of what lies between the slices, [ranks + 1] ascending; empty: each has all.
using RowBounds = std::vector<int64_t>;

/// x [N, H], the same on all ranks (or own rows, which become all) → [N, H]. Backward adds the gradients up (for own
/// rows).
at::Tensor enter_slices(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds = {});
/// A rank's part of a sum [N, H] → the sum, of all rows or of own ones; `part` may be overwritten. Backward hands the
/// gradient on (of all rows, gathered).
at::Tensor leave_slices(const at::Tensor& part, const Slicing& slicing, const RowBounds& bounds = {});
/// x, whose gradient only the first rank hands on: of what lies beside a branch, where the branch's gradients are added
/// up with it.
at::Tensor once(const at::Tensor& x, const Slicing& slicing);
/// Of x [N, H], the same on all ranks, own rows; the ranks' gradients are put together in backward.
at::Tensor own_rows(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds);
/// The other way round: own rows → all, whose gradient is the same on all ranks.
at::Tensor all_rows(const at::Tensor& x, const Slicing& slicing, const RowBounds& bounds);

/// x [N, P · own]: of each of P = `parts` blocks of `size` columns, cut in units, a rank's own → [N, P · size], the
/// same on all ranks. What is made of it is made on all of them; backward takes own columns of its gradient, the same
/// on each. Collective.
at::Tensor all_columns(const at::Tensor& x, const Slicing& slicing, int64_t size, int64_t unit,
                       int64_t parts = 1);

/// nn::attention of some heads, side by side, of a model's: qkv [T, 3 · count · head size], the queries of all first.
/// The same units are dropped as in the whole.
struct HeadSlice {
  int64_t first = 0, count = 0;
};
at::Tensor attention_of_heads(const at::Tensor& qkv, const at::Tensor& bias, const Packing& packing,
                              const HeadSlice& heads, const DropoutSite& dropout,
                              const std::optional<RowSubset>& queries = {}, bool repeatable = false,
                              const AttentionPattern& pattern = {});

/// A rank's words: rows [first, first + those of its table or bias) of a vocabulary of `whole`.
struct VocabularySlice {
  int64_t first = 0, whole = 0;
  const SliceGroup* group = nullptr;
};

/// nn::embed with a slice of the words; the other tables are whole. The words' rows are added up over the ranks, each
/// of which has some: T · H elements. Gives the whole [T, H] on every rank, and takes the whole gradient.
at::Tensor embed(const EmbeddingTables& tables, const VocabularySlice& words,
                 std::shared_ptr<const SliceGroup> group, const at::Tensor& ids, const at::Tensor& types,
                 const NormWeights& norm, const Packing& packing, const DropoutSite& dropout);

/// nn::vocabulary_cross_entropy with slices of weight and bias: the same loss on every rank, with the gradient of its
/// own logits (so that `hidden` has to have entered the slices). Three doubles a row cross the wire: the maximum of the
/// ranks' log-sum-exps, the sum of their exponentials above it, and the label's logit. With `draw` tokens of the whole
/// vocabulary are drawn, the same on every rank.
at::Tensor vocabulary_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& bias, const at::Tensor& labels,
                                    const VocabularySlice& slice, VocabularyDraw* draw = nullptr);

/// cross_entropy_rows (nn/row_operations.h) of a slice of the logits: the losses are those of the whole, and the logits
/// become this rank's part of softmax - onehot. Labels are of the whole vocabulary.
void sliced_cross_entropy_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& labels,
                               const at::Tensor& losses, bool gradients, const VocabularySlice& slice);

/// sample_rows (nn/row_operations.h) of a slice of the logits: tokens of the whole vocabulary, the same on every
/// rank. Collective. Two doubles a row and rank cross the wire, the log-sum-exp of its words and their greatest
/// logit, then two tokens.
void sliced_sample_rows(const at::Tensor& logits, const at::Tensor& bias, const at::Tensor& uniforms,
                        const at::Tensor& tokens, const at::Tensor& best, const VocabularySlice& slice);

}  // namespace funicular::nn
