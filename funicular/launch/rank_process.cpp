#include "funicular/launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>
#include <utility>

#include "funicular/base/clock.h"
#include "funicular/base/error.h"
#include "funicular/base/log.h"

extern char** environ;

namespace funicular::launch {

namespace {

constexpr size_t kLastLines = 10;

RunError no_pipe(int error) {
  return RunError(
      kLaunch, "no pipe: {}{}", errno_text(error),
      error == EMFILE ? "; allow this process more open files (ulimit -n), a few for each rank" : "");
}

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw no_pipe(errno);
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    close(read_end);
    close(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  int release_read_end() { return std::exchange(read_end, -1); }
  int release_write_end() { return std::exchange(write_end, -1); }
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

void close_if_exec_would(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFD);
  if (flags >= 0 && (flags & FD_CLOEXEC)) ::close(descriptor);
}

/// Closes what exec would close.
void close_on_exec_descriptors() {
  std::error_code error;
  std::vector<int> found;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error))
    found.push_back(std::atoi(entry->path().filename().c_str()));
  for (const int descriptor : found) close_if_exec_would(descriptor);
  if (!error) return;
  // Without a free descriptor the folder cannot be listed. Then the limit is low enough to try all.
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    for (rlim_t descriptor = 3; descriptor < limit.rlim_cur; ++descriptor)
      close_if_exec_would(static_cast<int>(descriptor));
}

/// The steps of the child after the fork.
struct Child {
  pid_t parent;
  const char* path;
  char* const* arguments;
  char* const* environment;
  const cpu_set_t* processors;  ///< or null
  int in, out, err, status;     ///< in: -1 for an empty one

  /// Makes only async-signal-safe calls, because LibTorch may have threads.
  void prepare() const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
    // A set that the system refuses (processors taken away meanwhile) costs speed only.
    if (processors) ::sched_setaffinity(0, sizeof *processors, processors);
    ::dup2(in >= 0 ? in : ::open("/dev/null", O_RDONLY), STDIN_FILENO);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    // SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU keep their disposition: a signal that nohup ignores stays ignored.
    for (int signal : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ, SIGCHLD}) ::signal(signal, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
  }

  [[noreturn]] void become() const {
    prepare();
    ::execve(path, arguments, environment);
    const int error = errno;
    [[maybe_unused]] const ssize_t ignored = ::write(status, &error, sizeof error);
    ::_exit(127);
  }

  /// Runs the program without exec; this process had no other thread. An exception would unwind into the child's copy
  /// of the launcher, whose destructors kill all ranks. So it ends only this rank.
  [[noreturn]] void become(const RankStart& start) const noexcept {
    prepare();
    environ = const_cast<char**>(environment);
    int code = static_cast<int>(ExitCode::failed);
    try {
      close_on_exec_descriptors();
      code = start.own_program(start.arguments);
    } catch (const std::exception& error) {
      log::error("[launch] the rank has ended early: {}", error.what());
    }
    std::exit(code);
  }
};

bool executable(const std::string& path) {
  std::error_code ignored;
  return ::access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path, ignored);
}

/// This process's descriptor for a rank's stream: 0 is standard output, 1 is standard error.
int own_descriptor(int stream) {
  return stream == 0 ? STDOUT_FILENO : STDERR_FILENO;
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // nobody reads any more; the ranks continue
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (executable(name)) return name;
    throw InputError(
        kLaunch, "{} is no program that can be executed{}", name,
        ::access(name.c_str(), F_OK) == 0 ? " (chmod +x makes a script one)" : ": it does not exist");
  }
  const char* variable = std::getenv("PATH");
  std::string_view folders = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const size_t end = folders.find(':');
    const std::string_view folder = folders.substr(0, end);
    const std::string path = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (executable(path)) return path;
    if (end == std::string_view::npos) break;
    folders.remove_prefix(end + 1);
  }
  throw InputError(kLaunch,
                   "no program \"{}\" in the folders of PATH; give its path. A command of funicular needs no "
                   "--: funicular launch -n 2 finetune …",
                   name);
}

RankProcess::RankProcess(const RankStart& start, RepeatedErrors& errors)
    : name_(start.name), prefix_(start.prefix), errors_(errors), start_(std::chrono::steady_clock::now()) {
  Pipe in, out, err, status;
  const std::vector<char*> arguments = pointers(start.arguments), environment = pointers(start.environment);
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (int id : start.processors) CPU_SET(id, &processors);
  const Child child{::getpid(),
                    start.path.c_str(),
                    arguments.data(),
                    environment.data(),
                    start.processors.empty() ? nullptr : &processors,
                    start.controlled ? in.read_end : -1,
                    out.write_end,
                    err.write_end,
                    status.write_end};
  std::fflush(nullptr);  // or both processes would write the buffered text
  pid_ = ::fork();
  if (pid_ < 0) throw RunError(kLaunch, "{}: no new process: {}", name_, errno_text(errno));
  if (pid_ == 0 && start.own_program) child.become(start);
  if (pid_ == 0) child.become();
  running_ = true;
  ::setpgid(pid_, pid_);  // both do it, so the order does not matter; refused once the child runs its program
  Pipe::close(status.write_end);
  int error = 0;
  ssize_t size = 0;
  do {
    size = ::read(status.read_end, &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  if (size == sizeof error) {
    ::waitpid(pid_, nullptr, 0);
    throw InputError(kLaunch, "{} cannot be executed: {}", start.path, errno_text(error));
  }
  if (start.controlled) {
    control_ = in.release_write_end();
    if (!start.first_line.empty()) write_all(control_, start.first_line + "\n");
  }
  streams_[0].plain = start.plain_output;
  Pipe* ends[] = {&out, &err};
  for (int stream : {0, 1}) {
    streams_[stream].descriptor = ends[stream]->release_read_end();
    ::fcntl(streams_[stream].descriptor, F_SETFL, O_NONBLOCK);
  }
}

RankProcess::~RankProcess() {
  if (running_) {
    send(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int descriptor : {streams_[0].descriptor, streams_[1].descriptor, control_})
    if (descriptor >= 0) ::close(descriptor);
}

double RankProcess::seconds() const {
  return seconds_since(start_);
}

void RankProcess::take(int stream, std::string_view bytes) {
  Stream& from = streams_[stream];
  if (from.plain)
    from.unchanged.add(bytes, [&](std::string_view whole) { write_all(own_descriptor(stream), whole); });
  from.lines.add(bytes, [&](std::string_view line) { take_line(stream, line); });
}

void RankProcess::take_line(int stream, std::string_view line) {
  if (!streams_[stream].plain && (stream == 0 || !errors_.is_repeated(line, streams_[stream].reader)))
    write_all(own_descriptor(stream), fmt::format("{}{}\n", prefix_, line));
  if (line.starts_with("frame #")) return;  // LibTorch's stack trace would push out the error itself
  last_lines_.emplace_back(line.substr(0, 1000));
  if (last_lines_.size() > kLastLines) last_lines_.pop_front();
}

void RankProcess::close_stream(int stream) {
  if (streams_[stream].descriptor < 0) return;
  streams_[stream].unchanged.finish([&](std::string_view rest) { write_all(own_descriptor(stream), rest); });
  streams_[stream].lines.finish([&](std::string_view line) { take_line(stream, line); });
  ::close(std::exchange(streams_[stream].descriptor, -1));
}

void RankProcess::copy_output(int stream) {
  char buffer[1 << 16];
  // Reads at most one pipe's worth per call, so that a rank that never stops writing does not keep others waiting.
  for (int round = 0; round < 16 && streams_[stream].descriptor >= 0; ++round) {
    const ssize_t size = ::read(streams_[stream].descriptor, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) return close_stream(stream);
    take(stream, {buffer, static_cast<size_t>(size)});
  }
}

void RankProcess::send(int signal) const {
  if (!running_) return;
  if (control_ >= 0 && signal != SIGKILL) return write_all(control_, fmt::format("signal {}\n", signal));
  ::kill(-pid_, signal);
}

bool RankProcess::reap() {
  siginfo_t info{};
  if (!running_ || ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return false;
  send(SIGKILL);  // before waitpid(): until then no other group can have this number
  int status = 0;
  ::waitpid(pid_, &status, 0);
  running_ = false;
  if (WIFSIGNALED(status)) ending_.signal = WTERMSIG(status);
  ending_.code = ending_.signal ? 128 + ending_.signal : WEXITSTATUS(status);
  for (int stream : {0, 1}) {
    copy_output(stream);
    close_stream(stream);
  }
  return true;
}

namespace {

/// Makes only async-signal-safe calls and allocates nothing: after a fork among threads, the state of the heap is
/// unknown.
[[noreturn]] void guard(int descriptor) {
  constexpr int kMost = 4096;
  static pid_t groups[kMost];
  int count = 0;
  while (true) {
    pid_t message = 0;
    const ssize_t size = ::read(descriptor, &message, sizeof message);
    if (size < 0 && errno == EINTR) continue;
    if (size != sizeof message) break;
    if (message > 0 && count < kMost) groups[count++] = message;
    for (int i = 0; i < count && message < 0; ++i)
      if (groups[i] == -message) groups[i--] = groups[--count];
  }
  for (int i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

Guardian::Guardian() {
  Pipe pipe;
  pid_ = ::fork();
  if (pid_ < 0) throw RunError(kLaunch, "no new process: {}", errno_text(errno));
  if (pid_ == 0) {
    ::setpgid(0, 0);  // a Ctrl-C at the terminal is not for it
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    for (int end : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, pipe.write_end})
      if (end != pipe.read_end) ::close(end);  // a reader of our output would wait for their end
    guard(pipe.read_end);
  }
  descriptor_ = std::exchange(pipe.write_end, -1);
}

Guardian::~Guardian() {
  ::close(descriptor_);
  ::kill(pid_, SIGCONT);  // a stopped process does not see that its input has ended
  for (int tries = 0; tries < 100; ++tries) {
    if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // The ranks that it guards are gone, so nothing is lost with it.
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Guardian::tell(pid_t message) {
  [[maybe_unused]] const ssize_t ignored = ::write(descriptor_, &message, sizeof message);
}

}  // namespace funicular::launch
