#pragma once
// Why a step has to be run: what it means now, beside what it meant when it was done.

#include <string>
#include <vector>

#include "funicular/chain/contents.h"
#include "funicular/chain/state.h"
#include "funicular/chain/step.h"

namespace funicular::chain {

/// What the step means, with its inputs as they are; not done yet. An input that is not there has an empty hash.
StepRecord meaning_of(const Step& step, Contents& contents);

/// What differs between the two, a line each: "--learning-rate was 0.0001, is 5e-05", "input train.tsv changed". An option
/// that only one of two versions of the program knows is no difference unless it is given.
std::vector<std::string> differences(const StepRecord& before, const StepRecord& now, const Step& step);

/// The changed options that change a sum's rounding only, a line each: "--threads was 1, is 2 (the same up to rounding)".
std::vector<std::string> differences_of_rounding(const StepRecord& before, const Step& step);

/// What is wrong with the products of a step that is done: "runs/teacher/model is missing", or "… was changed after it
/// was made".
std::vector<std::string> lost_products(const StepRecord& record, Contents& contents);

}  // namespace funicular::chain
