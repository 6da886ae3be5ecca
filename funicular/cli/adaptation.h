#pragma once
// Published schedules for a model that continues to learn: --recipe of pretrain.

#include <string>
#include <vector>

#include "funicular/cli/options.h"

namespace funicular::cli {

/// "dapt" and "tapt".
std::vector<std::string> recipe_names();

/// Sets the options that the user left out to the values of a recipe, and logs it. The values are from Gururangan
/// et al., "Don't Stop Pretraining", ACL 2020, table 13. Both recipes use Adam with betas .9 and .98, epsilon 1e-6
/// and weight decay .01. The learning rate warms up in 6 % of the steps, then falls linearly. The recipe dapt has
/// 12,500 steps of 2,048 sequences at 5e-4; tapt has 100 epochs in batches of 256 at 1e-4.
void apply_recipe(const std::string& name, const Arguments& arguments, TrainingOptions& training);

}  // namespace funicular::cli
