#pragma once
// Tells why a step has to be run: compares its meaning now with its meaning when it was done.

#include <string>
#include <vector>

#include "funicular/chain/contents.h"
#include "funicular/chain/state.h"
#include "funicular/chain/step.h"

namespace funicular::chain {

/// Returns the record of the step with its inputs as they are now, not marked as done. An input that does not exist
/// has an empty hash.
StepRecord meaning_of(const Step& step, Contents& contents);

/// Lists the differences of two records, one per line: "--learning-rate was 0.0001, is 5e-05", "input train.tsv
/// changed". An option that only one of two versions of the program knows is no difference unless it is given.
std::vector<std::string> differences(const StepRecord& before, const StepRecord& now, const Step& step);

/// Lists the changed options that only change the rounding of sums, one per line: "--threads was 1, is 2 (the same
/// up to rounding)".
std::vector<std::string> differences_of_rounding(const StepRecord& before, const Step& step);

/// Lists the problems with the products of a finished step: "runs/teacher/model is missing", or "… was changed
/// after it was made".
std::vector<std::string> lost_products(const StepRecord& record, Contents& contents);

}  // namespace funicular::chain
