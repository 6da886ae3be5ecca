#pragma once
// Checkpoints: named full tensors and a small JSON state, whatever layout wrote them, that are either whole
// or not there.
//
//   step-000120/  model.safetensors      parameters and buffers by their logical names
//                 optimizer.safetensors  "<state>/<parameter>"
//                 state.json             TrainingState
//                 manifest.json          size and XXH3 of each other file, written last

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/core/loss_watch.h"
#include "funicular/parallel/strategy.h"

namespace funicular::train {

/// The state of a run besides its tensors. The sampler and every random choice follow from seed and step.
struct TrainingState {
  int64_t step = 0;                               ///< global batches consumed
  double loss_sum = 0;                            ///< of the steps since the last record in metrics.jsonl
  int64_t loss_steps = 0;                         ///< the number of steps in loss_sum
  int64_t evaluated_step = 0;                     ///< of the last evaluation; 0: none
  int64_t best_step = 0;                          ///< 0: none
  std::map<std::string, double> best_evaluation;  ///< metrics of best_step
  int64_t evaluations_without_gain = 0;           ///< since best_step
  LossWatch loss_watch;                           ///< what tells a diverged loss
  std::vector<int64_t> drawn;  ///< samples of each corpus, where several are mixed: what follows from step
  OrderedJson loss_scaler;     ///< optim::LossScaler::state() of fp16; null: none
  std::map<std::string, std::string> identity;  ///< must be equal on resume
  std::map<std::string, std::string> settings;  ///< may differ on resume, with a warning

  /// As in a checkpoint's state.json.
  OrderedJson to_json() const;
  /// Throws InputError naming `origin` and the key.
  static TrainingState from_json(const Json& json, const std::string& origin);
};

/// The folder name of a step: "step-000120".
std::string checkpoint_name(int64_t step);

/// Steps and folders of the checkpoints in `folder`, newest first, valid or not. Empty if there is no such
/// folder.
std::vector<std::pair<int64_t, fs::path>> list_checkpoints(const fs::path& folder);

/// Throws RunError where a weight or buffer is no longer finite: the last update can overflow without a loss
/// that would show it. Collective.
void check_finite(parallel::Strategy& strategy, int64_t step);

/// Writes folder/step-NNNNNN as a whole, each rank its own pieces (all ranks must see the same folder). One
/// of the same step changes places with it, and is deleted when the new one has been read again and is sound.
/// Throws RunError; then all checkpoints are as they were. `before_commit` runs on rank 0 before the manifest
/// is written, from which on the checkpoint counts. Collective.
fs::path write_checkpoint(parallel::Strategy& strategy, const TrainingState& state, const fs::path& folder,
                          const std::function<void()>& before_commit = {});

/// Writes what `visit` shows to one file, each rank its own pieces: "model", "buffer" and "gradient" under
/// their names, optimiser state as in a checkpoint. Throws RunError. Collective.
void write_slices(const comm::Group& group, const fs::path& path,
                  const std::function<void(parallel::StateVisitor&)>& visit);

/// Deletes all but the newest `keep` and that of `best_step`, after it has verified the newest. keep = 0:
/// deletes none.
void prune_checkpoints(const fs::path& folder, int64_t keep, int64_t best_step);

/// Clears up after a killed process. A complete checkpoint that was not yet in its place is moved there, with
/// a warning; the rest is deleted.
void recover_leftovers(const fs::path& folder);

/// The newest checkpoint in `folder` whose files agree with its manifest, or an empty path. Warns about each
/// newer one that does not, with the reason.
fs::path newest_valid_checkpoint(const fs::path& folder);

/// state.json of a checkpoint.
TrainingState read_state(const fs::path& checkpoint);

/// Copies every tensor of the checkpoint into the strategy's state, and tells it. Throws InputError naming
/// the first tensor that is missing, left over, or of another shape or type; then nothing has been changed.
/// Collective.
void read_tensors(parallel::Strategy& strategy, const fs::path& checkpoint);

/// Writes parameters and buffers under their logical names.
void write_model_file(const Model& model, const fs::path& path);

/// Reads the file of write_model_file into a model of the same structure that is not being trained. Throws
/// InputError naming the first tensor that is missing, left over, or of another shape or type; then nothing
/// has been changed.
void read_model_file(Model& model, const fs::path& path);

}  // namespace funicular::train
