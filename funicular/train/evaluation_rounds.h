#pragma once
// The evaluations of a run: when they come, which is the best, and when no better one is waited for.

#include <map>
#include <string>

#include "funicular/train/run_folder.h"
#include "funicular/train/step_reports.h"
#include "funicular/train/training.h"

namespace funicular::train {

/// Everything is collective.
class EvaluationRounds {
 public:
  EvaluationRounds(Training& training, RunFolder& folder, StepReports& reports)
      : training_(training),
        options_(training.options),
        state_(training.state),
        folder_(folder),
        reports_(reports) {}

  /// Evaluates after the present step, if it is time. Throws Interrupted.
  void evaluate();
  /// Says that the run has ended early, if it has.
  void tell_early_stop() const;

 private:
  bool due() const;
  std::map<std::string, double> measure();
  void check(const std::map<std::string, double>& found);
  void note(const std::map<std::string, double>& found);
  void tell(const std::map<std::string, double>& found) const;

  Training& training_;
  const TrainerOptions& options_;
  TrainingState& state_;
  RunFolder& folder_;
  StepReports& reports_;
};

}  // namespace funicular::train
