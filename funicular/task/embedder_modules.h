#pragma once
// The modules of an embedder in training: from its folder, and as a teacher's vectors require.

#include <cstdint>
#include <memory>

#include "funicular/format/npy.h"
#include "funicular/objective/sentence_vectors.h"
#include "funicular/task/task.h"
#include "funicular/text/tokenizer.h"

namespace funicular::task {

/// Opens the table of FileOptions::teacher; null without a teacher. Throws InputError if a teacher is `needed` but
/// missing.
std::shared_ptr<const format::NpyFile> open_teacher(const FileOptions& files, bool needed);

/// Sets `modules` and `no_token` by the model's folder. A plain folder gets a normalisation if there is a teacher. If
/// the teacher's vectors have another size than the model's, a linear layer is added before the final normalisation.
/// `hidden`: numbers of a hidden state. Throws InputError for a folder that does not fit the tokeniser.
void take_modules(objective::SentenceVectorOptions& own, const text::Tokenizer& tokenizer,
                  const EmbeddingOptions& options, int64_t hidden);

}  // namespace funicular::task
