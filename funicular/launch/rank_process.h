#pragma once
// One process of a launch: its start, its output line by line, its signals, and its end.

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/launch/line_splitter.h"
#include "funicular/launch/repeated_errors.h"

namespace funicular::launch {

/// The component name in errors of launches.
inline constexpr const char* kLaunch = "launch";

/// Runs this program's main with the words of a command line; returns the exit code.
using OwnProgram = std::function<int(const std::vector<std::string>& arguments)>;

/// A program to start, by its path, and its surroundings.
struct RankStart {
  std::string path;
  std::vector<std::string> arguments;    ///< arguments[0] is the program's name
  std::vector<std::string> environment;  ///< "NAME=value"
  std::vector<int> processors;           ///< empty: all
  std::string name{};                    ///< for messages: "rank 2"
  std::string prefix{};                  ///< put before its lines
  bool plain_output = false;             ///< its standard output appears unchanged, without the prefix
  bool controlled = false;               ///< gets signals as lines "signal N" on its standard input
  std::string first_line{};              ///< first line of its standard input, if it is controlled
  /// Called in a fork of this process instead of starting the program at `path`; empty: the program is started. Only if
  /// this process has no other thread.
  OwnProgram own_program{};
};

/// The path of a program as a shell finds it. Throws InputError if there is none that can be executed.
std::string find_program(const std::string& name);

/// How a process ended.
struct Ending {
  int code = 0;    ///< its exit code, 128 + signal where a signal ended it
  int signal = 0;  ///< or 0
};

/// A running process that leads a process group of its own, and its output. The destructor kills the whole group,
/// unless the process was reaped.
class RankProcess {
 public:
  /// `errors`: what all ranks have reported so far; must outlive this object. Throws InputError if the program cannot
  /// be executed, RunError if there can be no process.
  RankProcess(const RankStart& start, RepeatedErrors& errors);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  bool running() const { return running_; }
  const Ending& ending() const { return ending_; }
  double seconds() const;
  /// The last lines that it wrote, to either stream.
  const std::deque<std::string>& last_lines() const { return last_lines_; }

  /// The descriptors to poll for output: 0 for stdout, 1 for stderr; -1 once closed.
  int output(int stream) const { return streams_[stream].descriptor; }
  /// Copies what is there to this process's stream, in whole lines; does not wait.
  void copy_output(int stream);

  /// Sends the signal to the whole group. A controlled process gets it on its standard input, except SIGKILL.
  void send(int signal) const;
  /// If the process has ended: kills the rest of its group, copies the rest of its output, and returns true.
  bool reap();

 private:
  struct Stream {
    int descriptor = -1;
    bool plain = false;  ///< its bytes are written unchanged
    WholeLines unchanged;
    LineSplitter lines;
    RepeatedErrors::Reader reader;
  };
  void take(int stream, std::string_view bytes);
  void take_line(int stream, std::string_view line);
  void close_stream(int stream);

  const std::string name_, prefix_;
  RepeatedErrors& errors_;
  pid_t pid_ = -1;
  int control_ = -1;  ///< the writing end of its standard input, or -1
  bool running_ = false;
  Ending ending_;
  Stream streams_[2];
  std::deque<std::string> last_lines_;
  std::chrono::steady_clock::time_point start_;
};

/// A helper process that outlives this one by a moment. Once this process is gone, however it ended, it kills the
/// groups that it was told of.
class Guardian {
 public:
  Guardian();
  /// Ends the helper: waits up to a second, then sends SIGKILL. It may be stopped, or hang, or be gone.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  void watch(pid_t group) { tell(group); }
  void forget(pid_t group) { tell(-group); }

 private:
  void tell(pid_t message);
  int descriptor_ = -1;
  pid_t pid_ = -1;
};

}  // namespace funicular::launch
