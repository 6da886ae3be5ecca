#include "funicular/chain/process.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"

namespace funicular::chain {

namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 20s;

/// Sets up the child after the fork and runs the program, by async-signal-safe calls only.
[[noreturn]] void become(pid_t parent, const char* program, char* const* words, int output) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  // SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU keep their disposition: a signal that nohup ignores stays ignored.
  for (int signal : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ, SIGCHLD}) ::signal(signal, SIG_DFL);
  ::execv(program, words);
  ::_exit(127);
}

/// Waits for the end, and passes a request to stop on.
int wait_for(pid_t child) {
  bool told = false;
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended < 0 && errno != EINTR)
      throw RunError("chain", "lost sight of a step's process: {}", errno_text(errno));
    if (ended == child && WIFEXITED(status)) return WEXITSTATUS(status);
    if (ended == child && WIFSIGNALED(status)) return 128 + WTERMSIG(status);
    if (const int signal = interrupt_requested(); signal != 0 && !told) {
      told = true;
      ::kill(child, signal);
    }
    std::this_thread::sleep_for(5ms);
  }
}

}  // namespace

int run_process(const fs::path& program, const std::vector<std::string>& words, const fs::path& output) {
  const int descriptor = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0) throw write_error(output, errno);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);  // or what waits there would be written by both
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) become(parent, program.c_str(), arguments.data(), descriptor);
  const int error = errno;
  ::close(descriptor);
  if (child < 0) throw RunError("chain", "no new process: {}", errno_text(error));
  return wait_for(child);
}

ChainLock::ChainLock(const fs::path& folder) {
  const fs::path path = folder / ".lock";
  // Without O_CLOEXEC: a step's process that outlives this one keeps the lock.
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0644);  // NOLINT
  if (descriptor_ < 0) throw write_error(path, errno);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (bool first = true; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0; first = false) {
    const int error = errno;
    if (error == EWOULDBLOCK && std::chrono::steady_clock::now() < until && !interrupt_requested()) {
      if (first)
        log::info(
            "another call of this chain is at work in {}, or one of its steps still saves; waiting for it",
            folder.string());
      std::this_thread::sleep_for(50ms);
      continue;
    }
    if (error == EINTR) continue;
    ::close(descriptor_);
    if (error == EWOULDBLOCK)
      throw InputError("chain", "another call of this chain is at work in {}; wait for it, or stop it",
                       folder.string());
    throw RunError("chain", "cannot lock {}: {}", path.string(), errno_text(error));
  }
}

ChainLock::~ChainLock() {
  ::close(descriptor_);
}

}  // namespace funicular::chain
