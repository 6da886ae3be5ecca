#pragma once
// Chooses the checkpoint from which a run resumes, checks that it may, and deals with all newer ones.

#include <cstdint>
#include <map>
#include <string>

#include "funicular/base/file.h"
#include "funicular/train/checkpoint.h"

namespace funicular::train {

/// Returns the checkpoint that `resume` (TrainerOptions::resume: "auto", "never", or a checkpoint or run) selects
/// for a run into `output`. An empty path means a start from the beginning. Throws InputError if the selected
/// checkpoint does not exist, if no checkpoint is valid, or if `output` holds another run.
fs::path find_checkpoint(const fs::path& output, const std::string& resume);

/// Returns the precision of the run that `resume` (TrainerOptions::resume) selects, by its name; empty if there is
/// no run or no readable state. Reads no tensors.
std::string precision_of_run(const fs::path& output, const std::string& resume);
/// Likewise, the metric that chooses the best model of that run.
std::string best_metric_of_run(const fs::path& output, const std::string& resume);

/// Throws InputError naming each field that differs from the saved identity. If the run `goes_on`, changed settings
/// apply to the remaining steps, with a warning. If it has taken its last step, changed settings are refused; only
/// the evaluation data may change, because the model is evaluated again.
void check_resumable(const TrainingState& saved, const std::map<std::string, std::string>& identity,
                     const std::map<std::string, std::string>& settings, const fs::path& checkpoint,
                     bool goes_on);

/// If the evaluation data differ from the saved settings, earlier evaluations cannot be compared with later ones.
/// The state then forgets the best evaluation, with a warning, and the evaluation of its step is repeated.
void forget_other_evaluation(TrainingState& saved, const std::map<std::string, std::string>& settings);

/// Renames the checkpoints of `output` after `step`, so that none is mistaken for a checkpoint of the run that
/// resumes from `checkpoint`. Does nothing if `checkpoint` is in another folder.
void set_newer_aside(const fs::path& output, const fs::path& checkpoint, int64_t step);

/// Copies the model of the best evaluation in `state` to output/model, from the run that holds `checkpoint`. This
/// is needed if the run resumes into another folder. If that run has lost the model, or has replaced it at a later
/// step, `state` forgets the best evaluation, with a warning.
void take_best_model(const fs::path& output, const fs::path& checkpoint, TrainingState& state);

}  // namespace funicular::train
