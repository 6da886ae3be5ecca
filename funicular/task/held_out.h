#pragma once
// A file of rows in two parts: rows to learn, and rows to evaluate on.

#include "funicular/task/finetune.h"

namespace funicular::task {

/// If `options` ask for a share of the training file to be held out: lets `task` read the other rows and `eval_task` these.
/// Leaves the options as they are, with a warning, if the file has too few rows. Throws InputError for a task that cannot
/// read a part of a file.
void hold_out_rows(FinetuneOptions& options);

}  // namespace funicular::task
