// usage: forked PROGRAM WORDS…: runs the program in a fork of one that has loaded its libraries already (server.cpp), and ends as it
// does. The first request starts the server; it lives as long as the ctest that runs us or, without one, as our parent.
// Where there is no program to serve, or no connection to its server, the program is started as ever.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

[[noreturn]] void run_it_here(char** words) {
  execv(words[0], words);
  std::fprintf(stderr, "forked: %s: %s\n", words[0], std::strerror(errno));
  std::exit(127);
}

struct Process {
  std::string name;
  pid_t parent = 0;
};

/// What the system knows of a process; nothing where there is none.
Process look_up(pid_t number) {
  std::ifstream file("/proc/" + std::to_string(number) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t open = line.find('('), shut = line.rfind(')');
  if (open == line.npos || shut == line.npos) return {};
  return {line.substr(open + 1, shut - open - 1), std::atoi(line.c_str() + shut + 4)};
}

/// Below a server nobody's ancestor is ctest: there the variable tells.
pid_t owner() {
  if (const char* const told = std::getenv("FUNICULAR_FORK_OWNER")) return std::atoi(told);
  for (pid_t number = getppid(); number > 1;) {
    const Process process = look_up(number);
    if (process.name == "ctest") return number;
    number = process.parent;
  }
  return getppid();
}

/// A server's name in the abstract space of sockets. Some variables are read as libraries are loaded: with others, another server.
sockaddr_un name_of_server(const char* program, pid_t owner) {
  struct stat file {};
  if (stat(program, &file) != 0) return {};
  std::string what =
      std::to_string(file.st_dev) + " " + std::to_string(file.st_ino) + " " + std::to_string(file.st_mtime);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable)
    for (const std::string_view prefix : {"OMP_", "GOMP_", "KMP_", "MKL_", "ATEN_", "ONEDNN_", "DNNL_", "LD_",
                                          "MALLOC_", "GLIBC_", "GTEST_", "FUNICULAR_MUTANT"})
      if (std::string_view(*variable).starts_with(prefix)) variables.emplace_back(*variable);
  std::sort(variables.begin(), variables.end());
  for (const std::string& variable : variables) what += "\n" + variable;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "funicular-fork-server-%d-%zx", owner,
                std::hash<std::string>{}(what));
  return name;
}

/// Whether the words are those of Python and a script, which a server of its own runs (server.py).
bool is_script(char** words) {
  const std::string_view program = words[0], script = words[1] ? words[1] : "";
  return program.substr(program.rfind('/') + 1).starts_with("python") && script.ends_with(".py");
}

/// In a process of its own, which holds none of our descriptors: whoever reads our output would wait for its end.
[[noreturn]] void become_server(char** words, int listening, pid_t owner, const std::string& folder) {
  setsid();
  if (fork() != 0) _exit(0);
  // Above the streams first: one of them may have been closed, and then its number is that of the socket.
  const int kept = fcntl(listening, F_DUPFD, 3);
  const int nothing = open("/dev/null", O_RDWR);
  for (int stream = 0; stream < 3; ++stream) dup2(nothing, stream);
  if (kept > 3) close_range(3, static_cast<unsigned>(kept) - 1, 0);
  close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
  setenv("FUNICULAR_FORK_SERVER", (std::to_string(kept) + " " + std::to_string(owner)).c_str(), 1);
  if (is_script(words)) {
    execl(words[0], words[0], (folder + "fork_server.py").c_str(), nullptr);
    _exit(1);
  }
  const std::string library = folder + "libfork_server.so";
  const char* const others = std::getenv("LD_PRELOAD");
  setenv("LD_PRELOAD", (others ? library + ":" + others : library).c_str(), 1);
  setenv("LD_BIND_NOW", "1", 1);  // names are looked up once, and not in each fork
  execl(words[0], words[0], nullptr);
  _exit(1);
}

/// A connection to the program's server, which is started where there is none; -1 where that fails. folder: of this program.
int connect_to_server(char** words, const std::string& folder, pid_t owner) {
  const sockaddr_un name = name_of_server(words[0], owner);
  const auto* const address = reinterpret_cast<const sockaddr*>(&name);
  if (name.sun_family != AF_UNIX) return -1;
  for (int attempt = 0, starts = 0; attempt < 1000 && starts < 3; ++attempt) {
    const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection, address, sizeof name) == 0) return connection;
    close(connection);
    // It listens before it has loaded anything, so whoever comes meanwhile waits instead of starting another.
    const int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listening, address, sizeof name) == 0 && listen(listening, 1000) == 0) {
      const pid_t starter = fork();
      if (starter == 0) become_server(words, listening, owner, folder);
      waitpid(starter, nullptr, 0);
      ++starts;
    } else {
      usleep(1000);
    }
    close(listening);
  }
  return -1;
}

bool send_request(int connection, char** words) {
  int count = 0;
  while (words[count]) ++count;
  char* const folder = get_current_dir_name();
  if (!folder) return false;
  std::string text = folder + std::string(1, '\0') + std::to_string(count) + '\0';
  for (char** word = words; *word; ++word) text += *word + std::string(1, '\0');
  for (char** variable = environ; *variable; ++variable) text += *variable + std::string(1, '\0');
  std::free(folder);

  uint64_t length = text.size();
  const int streams[3] = {0, 1, 2};
  iovec part{&length, sizeof length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof streams)] = {};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(head), streams, sizeof streams);
  if (sendmsg(connection, &message, MSG_NOSIGNAL) != sizeof length) return false;
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now = send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

int server_connection = -1;

/// The process that was asked for gets signals in our place: launchers, and tests that interrupt a run, know our number alone.
/// False where the request cannot be sent.
bool send_request_and_pass_on_signals(int connection, char** words) {
  server_connection = connection;
  sigset_t passed_on, usual;
  sigemptyset(&passed_on);
  for (const int number : kPassedOn) sigaddset(&passed_on, number);
  sigprocmask(SIG_BLOCK, &passed_on, &usual);  // they come behind the request
  const bool sent = send_request(connection, words);
  for (const int number : kPassedOn) {
    if (!sent) break;
    std::signal(number, [](int received) {
      const char byte = static_cast<char>(received);
      (void)!send(server_connection, &byte, 1, MSG_NOSIGNAL);
    });
  }
  sigprocmask(SIG_SETMASK, &usual, nullptr);
  return sent;
}

[[noreturn]] void end_as(int32_t status) {
  if (WIFEXITED(status)) std::exit(WEXITSTATUS(status));
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  std::signal(WTERMSIG(status), SIG_DFL);
  std::raise(WTERMSIG(status));
  std::exit(128 + WTERMSIG(status));
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) {
    std::fprintf(stderr, "usage: forked PROGRAM WORDS…\n");
    return 2;
  }
  std::string self(PATH_MAX, '\0');
  self.resize(
      static_cast<size_t>(std::max<ssize_t>(0, readlink("/proc/self/exe", self.data(), self.size()))));
  const pid_t owner = ::owner();
  // For programs that start themselves again (tests/comm/ranks.h).
  setenv("FUNICULAR_FORKED", self.c_str(), 1);
  setenv("FUNICULAR_FORK_OWNER", std::to_string(owner).c_str(), 1);
  const int connection = connect_to_server(words + 1, self.substr(0, self.rfind('/') + 1), owner);
  if (connection < 0 || !send_request_and_pass_on_signals(connection, words + 1)) run_it_here(words + 1);
  int32_t status = 0;
  const ssize_t got = recv(connection, &status, sizeof status, MSG_WAITALL);
  if (got == sizeof status) end_as(status);
  std::fprintf(stderr, "forked: no answer from the server of %s; the program alone may say why\n", words[1]);
  return 99;
}
