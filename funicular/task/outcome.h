#pragma once
// A summary of a fine-tuning for people: its score, a constant answer's score, and mistakes.

#include <cstdint>

#include "funicular/task/finetune.h"

namespace funicular::task {

/// Logs the best model's score, RunResult::baseline's score on the same rows, and the `mistakes` most certain
/// mistakes. The saved model answers the tokenised evaluation rows for this. `options`: of the training. Call it in
/// one process, after the run has ended.
void report_outcome(const FinetuneOptions& options, const RunResult& result, int64_t mistakes);

}  // namespace funicular::task
