#pragma once
// Records the order in which an asynchronous server served its workers, and replays it.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>

namespace funicular::parallel {

/// One action of a server for a worker in its step `step` (1-based), or for all workers after that step.
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

/// A text file. Its first line names the server, the number of workers, and how far one worker may be ahead of another.
/// Each further line is one event: "push WORKER STEP", "read WORKER STEP" or "meet 0 STEP". An object without a file
/// accepts every event and records nothing. For one thread at a time.
class Interleaving {
 public:
  Interleaving() = default;
  /// Writes the events after step `done`. Keeps earlier events that the file already holds from the run that is
  /// resumed.
  static Interleaving record(const std::filesystem::path& file, int server, int workers, int64_t staleness,
                             int64_t done);
  /// Allows the events of the file after step `done`, in its order. Throws InputError with file and line for a file
  /// that is not an interleaving of so many workers.
  static Interleaving replay(const std::filesystem::path& file, int server, int workers, int64_t staleness,
                             int64_t done);

  /// Whether this event may happen now, in a run whose workers meet next after step `meeting`. Throws RunError if the
  /// recording has ended, or if the event can never happen: the recorded run met elsewhere, or the file is damaged.
  bool allows(const ServerEvent& event, int64_t meeting) const;
  /// Notes that the event happens: appends it to the recording, or removes it from the events to replay.
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
