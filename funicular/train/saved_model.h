#pragma once
// The folder "model" of a run: the weights of the best evaluation, or of the end where nothing is evaluated.
// It is replaced as a whole, and a training.json in it tells the step.

#include <cstdint>
#include <functional>

#include "funicular/base/file.h"

namespace funicular::train {

/// Throws InputError if run/model was not written by a run into this folder, because training would delete it.
void check_saved_model(const fs::path& run);

/// Cleans up after a killed process. If run/model is missing, a completely written model takes its place. All other
/// leftovers are deleted.
void recover_saved_model(const fs::path& run);

/// The step whose weights run/model holds; 0 if there is none.
int64_t saved_model_step(const fs::path& run);

/// Replaces run/model by what `write` puts into an empty folder. Throws RunError, and what `write` throws.
void replace_saved_model(const fs::path& run, int64_t step,
                         const std::function<void(const fs::path& folder)>& write);

/// Replaces to/model by from/model. Does nothing if both are the same folder.
void copy_saved_model(const fs::path& from, const fs::path& to);

}  // namespace funicular::train
