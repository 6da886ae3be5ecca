#pragma once
// Records when a rank's passes run (pipeline/recording.h), and merges the records of a pipeline's ranks.

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "funicular/comm/group.h"
#include "funicular/pipeline/recording.h"

namespace funicular::parallel {

/// Records the newest step, or an asynchronous schedule's steps since the pipeline was last empty.
class PassRecorder {
 public:
  /// `ranks`: the ranks of the pipeline. Collective: they compare their clocks.
  explicit PassRecorder(const comm::Group& ranks);

  /// Begins a step: forgets earlier passes, and records passes from now on.
  void start();
  void begin(const pipeline::Action& action);
  void end();
  /// Ends a step, in which this rank ran `row`. Later passes (evaluations) are not recorded.
  void finish(const pipeline::Row& row);

  /// Writes the records of all ranks to `file`, on rank 0 of `ranks` if it `writes`. Collective. Throws RunError if the
  /// file cannot be written.
  void write(const comm::Group& ranks, const std::string& schedule, const std::filesystem::path& file,
             bool writes) const;

 private:
  using Clock = std::chrono::steady_clock;
  static double now() {
    return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
  }

  std::vector<double> meetings_;  ///< this rank's clock, in milliseconds, when it left barriers of the ranks
  bool notes_ = false;
  pipeline::Span current_;
  std::vector<pipeline::Span> spans_;  ///< with rank 0, as if this rank were alone
  pipeline::Row row_;
};

}  // namespace funicular::parallel
