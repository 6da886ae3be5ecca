#pragma once
// What is told of the steps of a run: records, the progress line, warnings of losses that have diverged.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "funicular/base/progress.h"
#include "funicular/train/run_folder.h"
#include "funicular/train/training.h"

namespace funicular::train {

/// Everything is collective.
class StepReports {
 public:
  StepReports(Training& training, const RunFolder& folder) : training_(training), folder_(folder) {}

  /// Before the first step.
  void begin();
  /// A step was taken: this rank's real tokens, and its time, of which it waited for its batch.
  void add_step(int64_t tokens, double seconds, double waited);
  /// Tells the last step.
  void tell(const parallel::StepResult& result);
  /// Warns where a loss, which `name` describes, has diverged.
  void watch(double loss, const char* name);
  /// An evaluation took so long, the best model's saving included.
  void note_evaluation(double seconds);
  /// After the last step.
  void end();

 private:
  std::string describe_steps() const;
  void record(const parallel::StepResult& result, double speed, int64_t memory);
  std::string shown_loss(const parallel::StepResult& result) const;
  double norm_over_ranks(double norm) const;
  double evaluation_seconds_left() const;

  Training& training_;
  const RunFolder& folder_;
  std::optional<Progress> progress_;

  // Since the last record.
  int64_t window_steps_ = 0, window_tokens_ = 0;
  double window_seconds_ = 0, window_wait_ = 0;
  double recorded_loss_ = NAN;     ///< in the last record
  double evaluation_seconds_ = 0;  ///< of the last evaluation
};

}  // namespace funicular::train
