#pragma once
// Chooses the checkpoint from which a run resumes, checks that it may, and deals with all newer ones.

#include <cstdint>
#include <map>
#include <string>

#include "funicular/base/file.h"
#include "funicular/train/checkpoint.h"

namespace funicular::train {

/// The checkpoint that `resume` (TrainerOptions::resume: "auto", "never", or a checkpoint or run) means for a
/// run into `output`; an empty path: start anew. Throws InputError where there is none that is asked for,
/// none that is valid, or where `output` holds another run.
fs::path find_checkpoint(const fs::path& output, const std::string& resume);

/// The precision of the run that `resume` (TrainerOptions::resume) goes on with, by its name; empty where there is
/// none, or none that can be read. Reads no tensors.
std::string precision_of_run(const fs::path& output, const std::string& resume);
/// Likewise the metric that its best model is chosen by.
std::string best_metric_of_run(const fs::path& output, const std::string& resume);

/// Throws InputError naming what differs from the saved identity. Settings that differ are those of the steps to
/// come, with a warning, if the run `goes_on`; of one that has taken its last step they are refused, but for
/// the evaluation data: its model is measured on these.
void check_resumable(const TrainingState& saved, const std::map<std::string, std::string>& identity,
                     const std::map<std::string, std::string>& settings, const fs::path& checkpoint,
                     bool goes_on);

/// Where the settings name other evaluation data than the saved ones, what was best so far cannot be compared
/// with what follows: the state forgets it, with a warning, and an evaluation of its step is done again.
void forget_other_evaluation(TrainingState& saved, const std::map<std::string, std::string>& settings);

/// Renames the checkpoints of `output` beyond `step`, so that none is taken for one of the run that resumes
/// from `checkpoint`. Nothing if `checkpoint` is of another folder.
void set_newer_aside(const fs::path& output, const fs::path& checkpoint, int64_t step);

/// Makes output/model that of the best evaluation in `state`: it is not where the run goes on in another
/// folder, or from an older step than that of the model. If it is lost, `state` forgets the best one.
void take_best_model(const fs::path& output, const fs::path& checkpoint, TrainingState& state);

}  // namespace funicular::train
