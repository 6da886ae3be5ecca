#pragma once
// Micro-batches of equal sizes, of which a GPU can repeat the recorded passes (parallel/graphed_passes.h).

#include <cstdint>
#include <optional>

#include "funicular/core/batch.h"

namespace funicular {

/// The tensor that pad_batch adds: the row of each sequence's first token, [S] int64.
inline constexpr const char* kFirstTokens = "first_tokens";

/// The tensors that pad_batch adds for terms of a distillation: whether a token [T, 1] or a sequence [S, 1] is added.
inline constexpr const char *kAddedTokens = "added_tokens", *kAddedSequences = "added_sequences";

/// A label that no loss counts, as LibTorch's cross-entropy has it.
inline constexpr int64_t kNoLabel = -100;

/// Returns the batch with sequences behind its own whose labels are kNoLabel. The numbers of tokens and of masked rows
/// become multiples of 256 and 128. The number of sequences becomes a multiple of 8, or of an eighth of a power of two.
/// The kernels for GPUs leave kNoLabel out, and the terms of a distillation leave out kAddedTokens and kAddedSequences.
/// So the loss and its gradients stay what they are, up to the order of sums. The counts stay as they are. `longest`:
/// tokens of the longest sequence afterwards, at least what the batch has.
///
/// None if the batch is not on the CPU, or `longest` is below 2. None if there are tensors besides token_ids,
/// token_type_ids, mlm_rows, mlm_labels, classes of sequences (labels [S] int64) and a teacher's outputs. These are
/// teacher.NAME, with a row for each token or sequence. None if the batch counts anything but masked words, classes and
/// the terms of a distillation. None for its terms `tokens` and `all-tokens`.
std::optional<MicroBatch> pad_batch(const MicroBatch& batch, int64_t longest);

}  // namespace funicular
