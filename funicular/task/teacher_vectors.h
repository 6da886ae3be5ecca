#pragma once
// A teacher's vectors for the rows of a file, which an embedder learns with --task vectors.

#include "funicular/base/file.h"
#include "funicular/task/finetune.h"

namespace funicular::task {

/// If `options` name a teacher, gives the tasks its vectors (FileOptions::teacher). An embedder's folder embeds the
/// rows into OUTPUT/data/teacher-KEY.npy, or finds them there. The key depends on the teacher and the texts, so
/// another command replaces nothing. A .npy file has a vector per row of the training file. Throws InputError for a
/// file that does not fit the rows. Collective.
void take_teacher(FinetuneOptions& options);

}  // namespace funicular::task
