#pragma once
// A run's folder: taken, resumed from, and written to during the run.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/train/disk_space.h"
#include "funicular/train/records.h"
#include "funicular/train/training.h"

namespace funicular::train {

/// The files of a run. For a run without an output folder most functions do nothing. All of them are collective.
class RunFolder {
 public:
  /// Locks the folder, and clears up after a killed process.
  explicit RunFolder(Training& training);

  /// Resumes from the checkpoint that the options select, if there is one. Call it after the strategy was attached.
  void resume();
  /// Prepares the first step: checks the space on the disk, writes run.json and opens the records. Tells if the run
  /// is already finished.
  void begin();

  /// A checkpoint of the present state, unless there is one.
  void save();
  /// Calls `read`. Saves before it throws what went wrong with the data: the training up to here is sound.
  void or_save(const char* what, const std::function<void()>& read);
  /// The present weights become the run's model.
  void save_model();
  /// Whether rank 0 finds the model that the run shall leave.
  bool model_is_saved() const;
  /// The state is another one than that of the last checkpoint, at the same step.
  void forget_saved() { saved_step_ = -1; }
  /// Writes how the run ended, unless it ended before and nothing was done now.
  void end();

  /// On rank 0 of a run that leaves files, else null.
  Records* records() const { return records_.get(); }

 private:
  fs::path checkpoints() const { return options_.output / "checkpoints"; }
  void take();
  void take_state(TrainingState saved, const fs::path& checkpoint);
  TrainingState read(const fs::path& checkpoint) const;
  void share_state();
  SpaceNeeds needs() const;
  void write_outcome();

  Training& training_;
  const TrainerOptions& options_;
  parallel::Strategy* const strategy_;
  TrainingState& state_;
  std::optional<RunLock> lock_;
  std::unique_ptr<Records> records_;
  OrderedJson earlier_;      ///< the result of a run that ended at the present step; null: there was none
  int64_t saved_step_ = -1;  ///< of the checkpoint in the run's folder that holds the present state; -1: none
};

}  // namespace funicular::train
