#pragma once
// The outcome of a fine-tuning, for people: its score beside a constant answer, and its mistakes.

#include <cstdint>

#include "funicular/task/finetune.h"

namespace funicular::task {

/// Tells what the best model scored, what RunResult::baseline scores on the same rows, and the `mistakes` most
/// certain mistakes. These are asked of the saved model, on the rows that the training has tokenised. `options`: of
/// the training. For one process, once the run has ended.
void report_outcome(const FinetuneOptions& options, const RunResult& result, int64_t mistakes);

}  // namespace funicular::task
