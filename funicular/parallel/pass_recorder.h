#pragma once
// Notes when a rank's passes run (pipeline/recording.h), and puts the notes of a pipeline's ranks together.

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/pipeline/recording.h"

namespace funicular::parallel {

/// Of the newest step, or of an asynchronous schedule's steps since the pipeline was empty.
class PassRecorder {
 public:
  /// `ranks`: of the pipeline. Collective: they compare their clocks.
  explicit PassRecorder(const comm::Group& ranks);

  /// A step begins, from which on passes are noted; those before it are forgotten.
  void start();
  void begin(const pipeline::Action& action);
  void end();
  /// The step is over: this was the rank's row, and later passes (evaluations) are not noted.
  void finish(const pipeline::Row& row);

  /// What all ranks noted goes into `file`, by rank 0 of them if it `writes`. Collective. Throws RunError where the file cannot be
  /// written.
  void write(const comm::Group& ranks, const std::string& schedule, const std::filesystem::path& file,
             bool writes) const;

 private:
  using Clock = std::chrono::steady_clock;
  static double now() {
    return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
  }

  std::vector<double> meetings_;  ///< when this rank's clock left barriers of the ranks
  bool notes_ = false;
  pipeline::Span current_;
  std::vector<pipeline::Span> spans_;  ///< of rank 0, as if this rank were alone
  pipeline::Row row_;
};

}  // namespace funicular::parallel
