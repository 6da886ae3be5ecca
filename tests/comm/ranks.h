#pragma once
// Tests of several processes: the test program starts itself once a rank.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "funicular/launch/environment.h"
#include "funicular/launch/secret.h"

extern char** environ;

namespace funicular::comm::test {

/// Whether a socket could be bound there. `keep`: it stays, until this process ends.
inline bool can_bind(int family, const void* address, size_t size, bool keep) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = ::bind(socket, static_cast<const sockaddr*>(address), static_cast<socklen_t>(size)) == 0;
  if (!bound || !keep) ::close(socket);
  return bound;
}

/// A port that no other process listens on and that no other test has taken. Above those that funicular launch takes: tests
/// run beside each other, and a rank must not meet another test's. A name among the abstract sockets tells that it is taken.
inline int some_port() {
  for (int attempt = 0; attempt < 10'000; ++attempt) {
    const int port = 61000 + static_cast<int>(std::random_device{}() % 4500);
    sockaddr_un name{AF_UNIX, {}};
    const std::string text = "funicular test's port " + std::to_string(port);
    text.copy(name.sun_path + 1, text.size());  // behind a zero byte: of no file
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (can_bind(AF_UNIX, &name, offsetof(sockaddr_un, sun_path) + 1 + text.size(), true) &&
        can_bind(AF_INET, &place, sizeof place, false))
      return port;
  }
  throw std::runtime_error("no port is free for the ranks of a test");
}

/// Whether this process is one of the ranks of a test.
inline bool is_rank() {
  return std::getenv("FUNICULAR_TEST_RANK") != nullptr;
}

/// At the end of what a rank does: a check that has failed there ends it as an error, which the test's own process sees.
inline void finish_rank() {
  if (is_rank() && testing::Test::HasFailure()) std::exit(1);
}

/// Whether the ranks exchange tensors as GPUs do (tests/CMakeLists.txt). Such runs repeat the tests of strategies with fewer
/// ranks and optimisers.
inline bool on_device_transport() {
  return std::getenv("FUNICULAR_TRANSPORT") != nullptr;
}

/// How long a rank may take.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr std::chrono::seconds kPatience{3000};
#else
inline constexpr std::chrono::seconds kPatience{240};
#endif

/// How the ranks of a test ended: exit codes, or minus the signal.
using Endings = std::vector<int>;

class Ranks {
 public:
  /// Starts `count` processes of this program that run the current test alone.
  explicit Ranks(int count) {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    const std::string filter = std::string("--gtest_filter=") + info->test_suite_name() + "." + info->name();
    const std::string secret = launch::make_secret();
    for (int rank = 0; rank < count; ++rank) {
      std::vector<std::string> variables{"FUNICULAR_TEST_RANK=1",
                                         "OMP_NUM_THREADS=1",
                                         "RANK=" + std::to_string(rank),
                                         "WORLD_SIZE=" + std::to_string(count),
                                         "LOCAL_RANK=" + std::to_string(rank),
                                         "LOCAL_WORLD_SIZE=" + std::to_string(count),
                                         "MASTER_ADDR=127.0.0.1",
                                         "MASTER_PORT=" + std::to_string(port_),
                                         std::string(launch::kSecretVariable) + "=" + secret};
      for (char** entry = environ; *entry; ++entry)
        if (std::strncmp(*entry, "OMP_NUM_THREADS=", 16) != 0 && std::strncmp(*entry, "GTEST_", 6) != 0)
          variables.emplace_back(*entry);
      std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe"), filter,
                                     "--gtest_brief=1"};
      // Where this process is a fork of one that has loaded LibTorch, so are the ranks.
      if (const char* const forked = std::getenv("FUNICULAR_FORKED")) words.insert(words.begin(), forked);
      pid_t pid = -1;
      if (::posix_spawn(&pid, words[0].c_str(), nullptr, nullptr, pointers(words).data(),
                        pointers(variables).data()) != 0)
        ADD_FAILURE() << "no process";
      processes_.push_back(pid);
    }
  }

  int port() const { return port_; }

  /// Waits for those of `ranks`, then kills the others. Processes that hang are killed too, and fail the
  /// test. In forks one that is killed here ends a moment later than this.
  Endings end(const std::vector<int>& ranks) {
    Endings endings(processes_.size(), 0);
    std::vector<bool> ended(processes_.size(), false);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (int rank : ranks) {
      while (!ended[size_t(rank)]) {
        if (std::chrono::steady_clock::now() > deadline) {
          ADD_FAILURE() << "rank " << rank << " hangs";
          break;
        }
        ended[size_t(rank)] = reap(rank, WNOHANG, endings);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      if (ended[rank]) continue;
      ::kill(processes_[rank], SIGKILL);
      reap(static_cast<int>(rank), 0, endings);
    }
    return endings;
  }
  Endings end() {
    std::vector<int> all;
    for (size_t rank = 0; rank < processes_.size(); ++rank) all.push_back(static_cast<int>(rank));
    return end(all);
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  }
  bool reap(int rank, int flags, Endings& endings) {
    int status = 0;
    if (::waitpid(processes_[size_t(rank)], &status, flags) <= 0) return false;
    endings[size_t(rank)] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    return true;
  }

  const int port_ = some_port();
  std::vector<pid_t> processes_;
};

/// In the test's own process: starts the ranks, and expects all to succeed. In a rank: runs `body`.
template <class Body>
void with_ranks(int count, const Body& body) {
  if (is_rank()) return body();
  EXPECT_EQ(Ranks(count).end(), Endings(static_cast<size_t>(count), 0));
}

}  // namespace funicular::comm::test
