#include "funicular/launch/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string_view>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"
#include "funicular/base/processor_limit.h"
#include "funicular/launch/hosts.h"
#include "funicular/launch/processors.h"
#include "funicular/launch/rank_process.h"
#include "funicular/launch/secret.h"

extern char** environ;

namespace funicular::launch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kThreads = "OMP_NUM_THREADS";

/// Blocks signals and makes them readable from a descriptor, to poll it. The destructor restores the mask.
class SignalQueue {
 public:
  SignalQueue() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    // A blocked signal is queued even if it is ignored: nohup's SIGHUP must stay out of the set.
    for (const int signal : kStopSignals)
      if (may_stop(signal)) sigaddset(&set, signal);
    ::pthread_sigmask(SIG_BLOCK, &set, &old_);
    descriptor_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (descriptor_ < 0) throw RunError(kLaunch, "no signal descriptor: {}", errno_text(errno));
  }
  ~SignalQueue() {
    next();  // discards a SIGCHLD that is still pending
    ::close(descriptor_);
    ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int descriptor() const { return descriptor_; }
  /// The next signal, or 0.
  int next() const {
    signalfd_siginfo info{};
    return ::read(descriptor_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  int descriptor_ = -1;
  sigset_t old_{};
};

/// Reads from standard input what the controlling launch says.
class ControlInput {
 public:
  explicit ControlInput(bool controlled) : descriptor_(controlled ? STDIN_FILENO : -1) {
    if (controlled) ::fcntl(descriptor_, F_SETFL, O_NONBLOCK);
  }

  /// Reads the first line, the secret of the run. Throws RunError if it does not come in time.
  std::string secret() {
    const std::string begin = fmt::format("{}=", kSecretVariable);
    constexpr int kMostMilliseconds = 60000;
    pollfd polled{descriptor_, POLLIN, 0};
    while (descriptor_ >= 0 && !read_line() && ::poll(&polled, 1, kMostMilliseconds) > 0) continue;
    const std::string line = take_line();
    if (!line.starts_with(begin))
      throw RunError(kLaunch, "the launch that controls this one has not told it the run's secret");
    return line.substr(begin.size());
  }

  /// The descriptor to poll; -1 if no launch controls this one, or its input has ended.
  int descriptor() const { return descriptor_; }
  /// The next signal to pass on, SIGKILL at the end of the input, or none.
  std::optional<int> next() {
    if (descriptor_ < 0) return std::nullopt;
    const bool whole = read_line();
    if (descriptor_ < 0) return SIGKILL;
    if (!whole) return std::nullopt;
    int signal = SIGTERM;  // also for any other line
    std::sscanf(take_line().c_str(), "signal %d", &signal);
    return signal;
  }

 private:
  /// Whether there is a whole line. Does not wait.
  bool read_line() {
    char buffer[256];
    while (text_.find('\n') == std::string::npos) {
      const ssize_t size = ::read(descriptor_, buffer, sizeof buffer);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0 && errno == EAGAIN) return false;
      if (size <= 0) {
        descriptor_ = -1;
        return false;
      }
      text_.append(buffer, static_cast<size_t>(size));
    }
    return true;
  }
  std::string take_line() {
    const size_t end = text_.find('\n');
    const std::string line = text_.substr(0, end);
    text_.erase(0, end == std::string::npos ? end : end + 1);
    return line;
  }

  int descriptor_;
  std::string text_;
};

bool port_is_free(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) throw RunError(kLaunch, "no socket: {}", errno_text(errno));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = ::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(descriptor);
  return free;
}

/// A free port for rank 0. It is below the range that the system gives to outgoing connections, so that none of them
/// takes it before rank 0 does.
int free_port() {
  int first_outgoing = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_outgoing;
  std::random_device random;
  std::uniform_int_distribution<int> ports(10000, std::max(10999, first_outgoing - 1));
  for (int attempt = 0; attempt < 100; ++attempt)
    if (const int port = ports(random); port_is_free(port)) return port;
  throw RunError(kLaunch, "no free port was found; give one with --rendezvous HOST:PORT");
}

bool has_name(std::string_view entry, std::string_view name) {
  return entry.size() > name.size() && entry.substr(0, name.size()) == name && entry[name.size()] == '=';
}

void set_variable(std::vector<std::string>& environment, std::string_view name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& entry) { return has_name(entry, name); });
  environment.push_back(fmt::format("{}={}", name, value));
}

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return fmt::format("signal {} ({}: {})", signal, name ? fmt::format("SIG{}", name) : "SIG?",
                     ::strsignal(signal));
}

std::string ending_text(const Ending& ending) {
  return ending.signal ? "was ended by " + signal_text(ending.signal)
                       : fmt::format("ended with exit code {}", ending.code);
}

constexpr int kInterrupted = static_cast<int>(ExitCode::interrupted);
constexpr int kUsage = static_cast<int>(ExitCode::usage);
constexpr int kFailed = static_cast<int>(ExitCode::failed);

/// One run of all ranks, from their start until the last one has ended.
class Round {
 public:
  Round(const LaunchOptions& options, const SignalQueue& signals, ControlInput& control,
        const std::vector<RankStart>& starts)
      : options_(options), signals_(signals), control_(control) {
    for (const RankStart& start : starts) {
      ranks_.push_back(std::make_unique<RankProcess>(start, errors_));
      guardian_.watch(ranks_.back()->pid());
    }
  }

  void run() {
    while (std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->running(); })) {
      wait();
      while (const int signal = signals_.next())
        if (signal != SIGCHLD) pass_on(signal);
      while (const std::optional<int> signal = control_.next()) obey(*signal);
      collect_the_dead();
      if (deadline_ && Clock::now() >= *deadline_) kill_the_rest();
    }
  }

  /// The exit code of the launch, if this was its last round.
  int code() const { return failure_ ? failure_->ending().code : 0; }
  bool may_restart() const {
    return code() != 0 && code() != kUsage && code() != kInterrupted && passed_on_ == 0;
  }

 private:
  /// Waits for output, a signal, or the end of the grace period.
  void wait() {
    std::vector<pollfd> polled{{signals_.descriptor(), POLLIN, 0}, {control_.descriptor(), POLLIN, 0}};
    std::vector<std::pair<RankProcess*, int>> sources;
    for (const auto& rank : ranks_)
      for (int stream : {0, 1})
        if (rank->output(stream) >= 0) {
          polled.push_back({rank->output(stream), POLLIN, 0});
          sources.emplace_back(rank.get(), stream);
        }
    // Wakes up once per second anyway, in case a signal is lost.
    const auto left = deadline_ ? *deadline_ - Clock::now() : std::chrono::seconds(1);
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    ::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<int64_t>(milliseconds, 0, 1000)));
    for (size_t i = 0; i < sources.size(); ++i)
      if (polled[i + 2].revents != 0) sources[i].first->copy_output(sources[i].second);
  }

  void collect_the_dead() {
    std::vector<RankProcess*> dead;
    for (const auto& rank : ranks_)
      if (rank->reap()) {
        guardian_.forget(rank->pid());
        dead.push_back(rank.get());
      }
    // If several have ended, the one that a signal ended comes first, because it is more likely the cause. One that
    // failed may only have lost its peer.
    std::stable_sort(dead.begin(), dead.end(), [](const RankProcess* a, const RankProcess* b) {
      return (a->ending().signal != 0) > (b->ending().signal != 0);
    });
    for (RankProcess* rank : dead)
      if (rank->ending().code != 0) note_failure(*rank);
  }

  void note_failure(RankProcess& rank) {
    const int code = rank.ending().code;
    if (code != kInterrupted) end_within_grace();
    const bool first = !failure_;
    if (!first && !explains(rank)) return;  // later failures follow from the first
    failure_ = &rank;
    if (code == kInterrupted) {
      log::info("[launch] {} was interrupted and can be resumed (exit code {})", rank.name(), code);
    } else if (passed_on_ != 0) {
      log::info("[launch] {} {} after {}", rank.name(), ending_text(rank.ending()), signal_text(passed_on_));
    } else {
      report(rank);
    }
    if (first && passed_on_ == 0) send(SIGTERM);
  }

  /// Whether a host that ended later than the first one that failed knows more about the cause. A host ends with the
  /// last of its ranks. So if one of its ranks was killed, it may end after hosts whose ranks failed because that one
  /// was gone.
  bool explains(const RankProcess& host) const {
    const int code = host.ending().code;
    return !options_.hosts.empty() && passed_on_ == 0 && failure_->ending().code == kFailed && code > 128 &&
           code != 128 + SIGTERM;
  }

  void report(const RankProcess& rank) const {
    std::string lines;
    // A host's launch has already named the rank and shown its lines. An error in the usage is the last thing printed.
    const bool told = !options_.hosts.empty() || rank.ending().code == kUsage;
    if (!told)
      for (const std::string& line : rank.last_lines()) lines += "\n  | " + line;
    log::error("[launch] {} (process {}) {} after {:.1f} s{}{}", rank.name(), rank.pid(),
               ending_text(rank.ending()), rank.seconds(),
               told            ? ""
               : lines.empty() ? "; it had written nothing"
                               : "; its last lines:",
               lines);
  }

  void pass_on(int signal) {
    ++signals_seen_;
    passed_on_ = signal;
    if (signals_seen_ == 1) {
      log::info("[launch] {}: passed on to every rank; waiting for them to save", signal_text(signal));
    } else if (signals_seen_ == 2) {
      log::warning("[launch] {} again: the ranks have {:g} s left", signal_text(signal),
                   options_.grace_seconds);
      end_within_grace();
    } else {
      return kill_the_rest();
    }
    send(signal);
  }

  /// Carries out what the controlling launch says, which itself counts signals and time.
  void obey(int signal) {
    if (signal == SIGKILL) {
      passed_on_ = SIGKILL;  // nobody is left to restart for
      return kill_the_rest();
    }
    if (signal == SIGCONT) return;
    pass_on(signal);
  }

  void send(int signal) const {
    for (const auto& rank : ranks_) {
      rank->send(signal);
      rank->send(SIGCONT);  // a stopped process takes no other signal
    }
  }

  void end_within_grace() {
    if (!deadline_)
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(options_.grace_seconds));
  }

  void kill_the_rest() {
    std::vector<std::string> left;
    for (const auto& rank : ranks_)
      if (rank->running()) left.push_back(rank->name());
    if (left.empty() || killed_) return;
    log::warning("[launch] {} {}: killed", fmt::join(left, ", "),
                 passed_on_ == SIGKILL ? "left alone by the launch that controls this one"
                                       : "did not end when asked to");
    killed_ = true;
    deadline_.reset();
    for (const auto& rank : ranks_) rank->send(SIGKILL);
  }

  const LaunchOptions& options_;
  const SignalQueue& signals_;
  ControlInput& control_;
  Guardian guardian_;
  RepeatedErrors errors_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  RankProcess* failure_ = nullptr;
  int passed_on_ = 0, signals_seen_ = 0;
  bool killed_ = false;
  std::optional<Clock::time_point> deadline_;
};

void check(const LaunchOptions& options) {
  if (options.command.empty())
    throw InputError(kLaunch,
                     "no command to start; write it after --, as in: funicular launch -n 2 -- "
                     "funicular pretrain …");
  if (options.ranks < 1 || options.ranks > 1024)
    throw InputError(kLaunch, "expected 1 to 1024 ranks on a host, found {}", options.ranks);
  if (!options.hosts.empty()) return;
  if (options.nodes < 1 || options.node_rank < 0 || options.node_rank >= options.nodes)
    throw InputError(kLaunch, "--node-rank must be from 0 to --nnodes - 1, found {} of {} nodes",
                     options.node_rank, options.nodes);
  if (options.world_size > 0 && std::max(0, options.first_rank) + options.ranks > options.world_size)
    throw InputError(kLaunch, "--first-rank {} and {} ranks of this host go beyond --world-size {}",
                     std::max(0, options.first_rank), options.ranks, options.world_size);
  if (options.nodes > 1 && options.port == 0)
    throw InputError(kLaunch,
                     "{} nodes need one meeting point: give --rendezvous HOST:PORT, the same on every "
                     "node, where HOST is the node with --node-rank 0",
                     options.nodes);
}

bool is_this_program(const std::string& path) {
  std::error_code error;
  return std::filesystem::equivalent(path, "/proc/self/exe", error) && !error;
}

/// Whether this process has other threads; true if that cannot be known.
bool has_other_threads() {
  std::error_code error;
  const std::filesystem::directory_iterator threads("/proc/self/task", error);
  return error || std::distance(begin(threads), end(threads)) > 1;
}

std::vector<std::string> own_words() {
  std::vector<std::string> words;
  std::ifstream line("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(line, word, '\0');) words.push_back(word);
  return words;
}

/// Restarts this process with the number of threads that every rank shall have. Returns only if that fails.
void restart_with_threads(int threads) {
  std::vector<std::string> words = own_words();
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || words.empty()) return;
  std::fflush(nullptr);
  ::setenv(kThreads, fmt::to_string(threads).c_str(), 1);
  ::execv(self.c_str(), arguments.data());
  ::unsetenv(kThreads);
}

/// Whether ranks are to be forks of this process. It may restart the process instead of returning.
bool fork_ranks(const LaunchOptions& options) {
  if (!options.own_program || !options.hosts.empty() || has_other_threads() ||
      !is_this_program(find_program(options.command[0])))
    return false;
  const int share =
      divide_processors(available_processors(), options.ranks, processor_quota()).front().threads;
  if (!std::getenv(kThreads)) restart_with_threads(share);
  // OpenMP has also read the number of processors, which is the number for all ranks. A rank with more threads than its
  // share would waste time, because waiting OpenMP threads do not give way.
  const char* threads = std::getenv(kThreads);
  return threads && std::atoi(threads) <= share;
}

/// The secret that only the ranks of this launch shall know; empty: none.
std::string secret_of(const LaunchOptions& options, ControlInput& control) {
  if (options.controlled) return control.secret();
  const char* const given = std::getenv(kSecretVariable);
  if (given && *given) {
    check_secret(given);
    return given;
  }
  if (options.hosts.empty() && options.nodes > 1) return "";
  return make_secret();
}

std::vector<RankStart> rank_starts(const LaunchOptions& options, const std::string& secret, int port,
                                   int restart, bool fork) {
  const std::string path = find_program(options.command[0]);
  std::vector<std::string> common;
  for (char** entry = environ; *entry; ++entry) common.emplace_back(*entry);
  const int first = options.first_rank >= 0 ? options.first_rank : options.node_rank * options.ranks;
  const int world = options.world_size > 0 ? options.world_size : options.nodes * options.ranks;
  set_variable(common, "WORLD_SIZE", fmt::to_string(world));
  set_variable(common, "LOCAL_WORLD_SIZE", fmt::to_string(options.ranks));
  set_variable(common, "GROUP_RANK", fmt::to_string(options.node_rank));
  set_variable(common, "MASTER_ADDR", options.address);
  set_variable(common, "MASTER_PORT", fmt::to_string(port));
  set_variable(common, "FUNICULAR_LAUNCH", "1");
  // A rank writes to a pipe, but a person at a terminal reads it.
  if (::isatty(STDERR_FILENO)) set_variable(common, "FUNICULAR_LOG_TIMES", "off");
  if (!secret.empty()) set_variable(common, kSecretVariable, secret);
  set_variable(common, "FUNICULAR_RESTART", fmt::to_string(restart));
  const bool threads_given = std::getenv(kThreads) != nullptr;
  const auto shares = divide_processors(available_processors(), options.ranks, processor_quota());
  std::vector<RankStart> starts;
  for (int local = 0; local < options.ranks; ++local) {
    const ProcessorShare& share = shares[static_cast<size_t>(local)];
    RankStart start{path, options.command, common, options.pin ? share.ids : std::vector<int>{}};
    start.name = fmt::format("rank {}", first + local);
    start.prefix = fmt::format("[{}] ", first + local);
    start.plain_output = first + local == 0;
    set_variable(start.environment, "RANK", fmt::to_string(first + local));
    set_variable(start.environment, "LOCAL_RANK", fmt::to_string(local));
    if (!threads_given) set_variable(start.environment, kThreads, fmt::to_string(share.threads));
    if (fork) start.own_program = options.own_program;
    starts.push_back(std::move(start));
  }
  return starts;
}

}  // namespace

int launch(const LaunchOptions& options) {
  check(options);
  const SignalQueue signals;  // from here on: loading a library before the forks takes a while
  const bool fork = fork_ranks(options);
  if (fork && options.before_forks) options.before_forks();
  ControlInput control(options.controlled);
  const std::string secret = secret_of(options, control);
  while (const int signal = signals.next())
    if (signal != SIGCHLD) {
      log::info("[launch] {} before the ranks were started: nothing has begun, run the same command again",
                signal_text(signal));
      return kInterrupted;
    }
  for (int restart = 0;; ++restart) {
    const int port = options.port ? options.port : free_port();
    const int number = options.first_restart + restart;
    Round round(options, signals, control,
                options.hosts.empty() ? rank_starts(options, secret, port, number, fork)
                                      : host_starts(options, secret, port, number));
    round.run();
    if (!round.may_restart() || restart == options.max_restarts) return round.code();
    log::warning("[launch] starting all ranks again (restart {} of {})", restart + 1, options.max_restarts);
  }
}

}  // namespace funicular::launch
