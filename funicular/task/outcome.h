#pragma once
// What a fine-tuning has come to, for people: its score beside an answer that is always the same, and mistakes.

#include <cstdint>

#include "funicular/task/finetune.h"

namespace funicular::task {

/// Tells the score of the best model on its evaluated rows, what RunResult::baseline scores there, and the `mistakes` mistakes
/// of which the model is most certain. These are asked of the saved model, on the rows that the training has tokenised.
/// `options`: those of the training. For one process, once the run has ended.
void report_outcome(const FinetuneOptions& options, const RunResult& result, int64_t mistakes);

}  // namespace funicular::task
