#pragma once
// A teacher's vectors for the rows of a file: what an embedder learns with --task vectors.

#include "funicular/base/file.h"
#include "funicular/task/finetune.h"

namespace funicular::task {

/// If `options` name a teacher, the tasks get its vectors (FileOptions::teacher). A folder of an embedder embeds the
/// rows into OUTPUT/data/teacher-KEY.npy, or finds them there. The key stands for the teacher and the texts, so a
/// command with others replaces nothing. A .npy file has a vector per row of the training file. Throws InputError for
/// a file that does not fit the rows. Collective.
void take_teacher(FinetuneOptions& options);

}  // namespace funicular::task
