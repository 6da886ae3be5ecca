#pragma once
// Poolings: make one row per sequence of a packed batch from the hidden states of its tokens.

#include <ATen/core/Tensor.h>

#include <vector>

#include "funicular/core/batch.h"
#include "funicular/format/sentence_folder.h"

namespace funicular::model {

/// A tensor [S] int64 of the batch: the number of first tokens per sequence that poolings leave out, such as a
/// prompt's. Missing: none. At least one token of each sequence stays.
inline constexpr const char* kPromptTokens = "prompt_tokens";

/// Hidden states of all tokens [T, H] → [S, H] in the type of the sums: float32, or float64 for float64. Special
/// tokens are included. Differentiable; tokens that share a maximum share its gradient.
at::Tensor pool_tokens(const at::Tensor& hidden, const MicroBatch& batch, format::Pooling pooling);

/// The rows [S] int64 of the packed batch, on the CPU, that a pooling of one token reads: cls or last_token.
at::Tensor pooled_rows(const MicroBatch& batch, format::Pooling pooling);

}  // namespace funicular::model
