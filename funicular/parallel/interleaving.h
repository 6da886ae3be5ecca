#pragma once
// The order in which an asynchronous server dealt with its workers: recorded, and brought about again.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>

namespace funicular::parallel {

/// What a server does for one worker in its step `step` (1-based).
struct ServerEvent {
  enum class Kind {
    push,  ///< it applies the worker's gradient
    read   ///< it takes the weights that the worker computes the next step with
  };
  Kind kind = Kind::push;
  int worker = 0;
  int64_t step = 0;
  bool operator==(const ServerEvent&) const = default;
};

/// A text file with one event a line, "push WORKER STEP" or "read WORKER STEP", below one that names the
/// server and the number of workers. A value of no file takes and allows every event. One thread at a time.
class Interleaving {
 public:
  Interleaving() = default;
  /// Writes the events after step `done`; those up to it that the file holds already, of the run that is
  /// resumed, stay.
  static Interleaving record(const std::filesystem::path& file, int server, int workers, int64_t done);
  /// Allows the events of the file after step `done`, in its order. Throws InputError naming file and line
  /// for one that is not an interleaving of so many workers.
  static Interleaving replay(const std::filesystem::path& file, int server, int workers, int64_t done);

  /// Whether this may happen now. Throws RunError when the recording has ended.
  bool allows(const ServerEvent& event) const;
  /// It happens.
  void take(const ServerEvent& event);

 private:
  static std::deque<ServerEvent> read(const std::filesystem::path& file, int server, int workers);

  std::filesystem::path file_;
  std::ofstream out_;
  bool replays_ = false;
  std::deque<ServerEvent> expected_;
};

}  // namespace funicular::parallel
