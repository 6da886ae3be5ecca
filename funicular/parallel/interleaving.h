#pragma once
// The order in which an asynchronous server dealt with its workers: recorded, and brought about again.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>

namespace funicular::parallel {

/// What a server does for one worker in its step `step` (1-based), or for all after it.
struct ServerEvent {
  enum class Kind {
    push,  ///< it applies the worker's gradient
    read,  ///< it takes the weights that the worker computes the next step with
    meet   ///< all workers take its weights; `worker` is 0
  };
  Kind kind = Kind::push;
  int worker = 0;
  int64_t step = 0;
  bool operator==(const ServerEvent&) const = default;
};

/// A text file with one event a line, "push WORKER STEP", "read WORKER STEP" or "meet 0 STEP", below one that
/// names the server, the number of workers, and how far one may be ahead of another. A value of no file takes
/// and allows every event. One thread at a time.
class Interleaving {
 public:
  Interleaving() = default;
  /// Writes the events after step `done`; those up to it that the file holds already, of the run that is
  /// resumed, stay.
  static Interleaving record(const std::filesystem::path& file, int server, int workers, int64_t staleness,
                             int64_t done);
  /// Allows the events of the file after step `done`, in its order. Throws InputError naming file and line
  /// for one that is not an interleaving of so many workers.
  static Interleaving replay(const std::filesystem::path& file, int server, int workers, int64_t staleness,
                             int64_t done);

  /// Whether this may happen now, in a run whose workers meet after step `meeting` next. Throws RunError when
  /// the recording has ended, and where it can never happen: the recorded run met elsewhere, or the file is
  /// damaged.
  bool allows(const ServerEvent& event, int64_t meeting) const;
  /// It happens.
  void take(const ServerEvent& event);

 private:
  static std::deque<ServerEvent> read(const std::filesystem::path& file, int server, int workers,
                                      int64_t staleness);

  std::filesystem::path file_;
  std::ofstream out_;
  bool replays_ = false;
  std::deque<ServerEvent> expected_;
};

}  // namespace funicular::parallel
