#pragma once
// A progress line for the person at the terminal; plain lines, seldom, where there is no terminal.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace funicular {

/// How often and where progress is shown.
struct ProgressOptions {
  std::string unit;           ///< e.g. "rows"; "" for none, "B" for bytes (shown as kB, MB, GB)
  double plain_seconds = 30;  ///< between two plain lines where there is no terminal
  std::FILE* stream = stderr;
  std::optional<bool> terminal;  ///< none: whether `stream` is one
  uint64_t start = 0;            ///< done before, e.g. by the process that is resumed; not in the rate
};

/// One line, redrawn at most ten times per second and cleared before each log message.
///
///   tokenize  63%  1.20M of 1.90M rows  410k rows/s  0:02 left  extra
///
/// The line of the newest live object is shown. Thread-safe.
class Progress {
 public:
  using Options = ProgressOptions;

  /// `total` 0: unknown.
  explicit Progress(std::string name, uint64_t total = 0, Options options = {});
  ~Progress();  ///< clears the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` so far (not the increment). Cheap when nothing is to be drawn. `beside_left`: seconds of uncounted work
  /// until the end, such as evaluations; the time left includes them.
  void update(uint64_t done, std::string_view extra = {}, double beside_left = 0);
  /// Tells seconds of uncounted work, which the rate leaves out.
  void spent_beside(double seconds);
  /// Clears the line; on a plain stream, and with a message on a terminal too, prints one last line.
  void finish(std::string_view message = {});
  /// As update, but with the whole line after the name made by the caller.
  void show(std::string_view line);

 private:
  using Clock = std::chrono::steady_clock;
  bool due(Clock::time_point now);
  std::string amount(double done) const;
  std::string line(uint64_t done, std::string_view extra, double beside_left, Clock::time_point now) const;
  std::string stamp() const;
  void draw(const std::string& line);

  std::string name_;
  uint64_t total_;
  Options options_;
  bool terminal_;
  bool finished_ = false;
  Clock::time_point start_, last_;
  uint64_t last_done_ = 0;
  double beside_ = 0;  ///< see spent_beside
};

/// "1234567" as "1.23M"; "0:04", "12:07", "3:25:00" for seconds.
std::string short_number(double value);
std::string short_duration(double seconds);

}  // namespace funicular
