#pragma once
// Micro-batches of equal sizes, of which a GPU can repeat the recorded passes (parallel/graphed_passes.h).

#include <cstdint>
#include <optional>

#include "funicular/core/batch.h"

namespace funicular {

/// The tensor that pad_batch adds for classifiers: the row of each sequence's first token, [S] int64.
inline constexpr const char* kFirstTokens = "first_tokens";

/// A label that no loss counts, as LibTorch's cross-entropy has it.
inline constexpr int64_t kNoLabel = -100;

/// Returns the batch with sequences behind its own whose labels are kNoLabel. The numbers of tokens and of masked rows
/// become multiples of 256 and 128, and the number of added sequences depends on `longest` alone. With the
/// kernels for GPUs, which leave kNoLabel out, the loss and its gradients stay what they are, up to the order of sums.
/// The counts stay as they are. `longest`: tokens of the longest sequence
/// afterwards, at least what the batch has.
///
/// None if the batch is not on the CPU, or `longest` is below 2. None if there are other tensors than token_ids,
/// token_type_ids, mlm_rows, mlm_labels and classes of sequences (labels [S] int64), or other counts than theirs.
std::optional<MicroBatch> pad_batch(const MicroBatch& batch, int64_t longest);

}  // namespace funicular
