#pragma once
// Tells about the steps of a run: records, the progress line, and losses that have diverged, which end the run.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "funicular/base/progress.h"
#include "funicular/train/run_folder.h"
#include "funicular/train/training.h"

namespace funicular::train {

/// A warning if no training of this kind learns at such a rate; else "".
std::string unusual_rate(const optim::OptimizerSpec& spec);

/// A warning if the warm-up is longer than the run of `max_steps` steps, so that the learning rate never reaches its
/// peak; else "".
std::string unfinished_warmup(const optim::Schedule& schedule, double peak, int64_t max_steps);

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
  /// Throws RunError on all ranks if a loss, which `name` describes, is not finite or has diverged.
  void require_sound(double loss, const char* name) const;
  /// To be called after the last step, before anything is saved. Throws RunError on all ranks if the last step's loss
  /// is not sound, or if no step has updated a weight. `last_loss`: that of this call's last step, if it took one.
  void require_success(double last_loss) const;
  /// An evaluation took so long, the best model's saving included.
  void note_evaluation(double seconds);
  /// After the last step.
  void end();

 private:
  std::string describe_steps() const;
  std::string describe_ranks() const;
  std::string describe_scaling() const;
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
