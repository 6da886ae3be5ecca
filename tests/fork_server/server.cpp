// Loaded before a program (LD_PRELOAD): loads the program's libraries once and runs its main() in a fork for each request
// that comes over a socket. Of a short test, loading LibTorch is most of the time, and there are thousands of short tests.
// What runs is the program itself, with the words, the environment, the folder and the streams of the request.
// client.cpp starts a server, says for how long it lives and sends the requests.
//
// A request is 8 bytes (the length of what follows) with three descriptors (standard input, output and error), and then
// strings that each end with a zero byte: the folder, the number of words, the words, the variables.
// Each byte behind them is the number of a signal for the process. The answer is the wait status of the process, 4 bytes. Where the
// connection ends before, the process is killed.
//
// A process that starts its own program again (funicular prove and chain do) starts the client with it: those run in forks, too.

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
using Exec = int (*)(const char*, char* const*, char* const*);
Main program_main = nullptr;
Exec usual_exec = nullptr;
char own_path[PATH_MAX] = "";  // empty in a process that no server runs

constexpr int kFailed = 99;

/// False at the end of the connection.
bool read_fully(int socket, void* data, size_t size) {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = read(socket, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got, size -= static_cast<size_t>(got);
  }
  return true;
}

struct Request {
  std::vector<char> text;
  int streams[3] = {-1, -1, -1};
};

/// False where the connection ends before the request does.
bool receive(int socket, Request& request) {
  uint64_t length = 0;
  iovec part{&length, sizeof length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof request.streams)];
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof length || !CMSG_FIRSTHDR(&message))
    return false;
  std::memcpy(request.streams, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof request.streams);
  request.text.resize(length);
  return read_fully(socket, request.text.data(), length);
}

/// In the fork: becomes the process that was asked for, as exec would.
int become(Request& request) {
  char* at = request.text.data();
  char* const end = at + request.text.size();
  const auto next = [&] {
    char* const found = at;
    at += std::strlen(at) + 1;
    return found;
  };
  for (int stream = 0; stream < 3; ++stream)
    if (dup2(request.streams[stream], stream) < 0) _exit(kFailed);
  if (chdir(next()) != 0) _exit(kFailed);
  const int count = std::atoi(next());
  // One behind the other in one block, as the kernel lays them.
  std::vector<char*> words;
  for (int word = 0; word < count; ++word) words.push_back(next());
  words.push_back(nullptr);
  // Of a variable that is there twice getenv gives the first, as after exec.
  static std::vector<char*> variables;
  while (at < end) variables.push_back(next());
  variables.push_back(nullptr);
  environ = variables.data();
  return program_main(count, words.data(), environ);
}

/// Until the process ends, or its client does: then the process is killed, and with it what it has started in its process group.
int wait_for(pid_t process, int client, const sigset_t& waiting) {
  int status = kFailed << 8;
  while (waitpid(process, &status, WNOHANG) == 0) {
    pollfd heard{client, POLLIN | POLLRDHUP, 0};
    // SIGCHLD is let in here alone, so none comes unseen between waitpid and this.
    if (ppoll(&heard, 1, nullptr, &waiting) <= 0) continue;
    unsigned char number = 0;
    if (recv(client, &number, 1, 0) == 1) {
      kill(process, number);
      continue;
    }
    kill(-process, SIGKILL);
    waitpid(process, &status, 0);
    break;
  }
  return status;
}

void answer(int client) {
  Request request;
  if (!receive(client, request)) return;
  sigset_t child, usual;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, &usual);
  sigset_t waiting = usual;
  sigdelset(&waiting, SIGCHLD);
  std::signal(SIGCHLD, [](int) {});
  const pid_t process = fork();
  if (process < 0) return;
  if (process == 0) {
    close(client);
    setpgid(0, 0);
    std::signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_SETMASK, &usual, nullptr);
    const int code = become(request);
    // LibTorch's end takes longer than most tests, so it is left out.
    std::fflush(nullptr);
    _exit(code);
  }
  setpgid(process, process);
  for (const int stream : request.streams) close(stream);
  const int32_t status = wait_for(process, client, waiting);
  (void)!write(client, &status, sizeof status);
}

/// FUNICULAR_FORK_SERVER: the descriptor of a socket that listens, and the process whose end is that of the server.
int serve(int, char**, char**) {
  int socket = -1, owner = 0;
  if (std::sscanf(std::getenv("FUNICULAR_FORK_SERVER"), "%d %d", &socket, &owner) != 2) return kFailed;
  if (void* const load = dlsym(RTLD_DEFAULT, "funicular_load_commands")) reinterpret_cast<void (*)()>(load)();
  if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0) own_path[0] = '\0';
  // Nobody waits for the processes that answer.
  std::signal(SIGCHLD, SIG_IGN);
  while (kill(owner, 0) == 0) {
    pollfd asked{socket, POLLIN, 0};
    if (poll(&asked, 1, /*milliseconds=*/500) <= 0) continue;
    const int client = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0 && (errno == EBADF || errno == ENOTSOCK || errno == EINVAL)) break;
    if (client < 0) continue;
    if (fork() == 0) {
      close(socket);
      answer(client);
      _exit(0);
    }
    close(client);
  }
  _exit(0);
}

/// Runs the program as exec does, or the client with it if it is that of this server. Between fork and exec memory may be locked.
int exec_or_fork(const char* path, char* const* words, char* const* variables) {
  constexpr size_t kMost = 4096;
  char* with_client[kMost + 2];
  const char* const client = getenv("FUNICULAR_FORKED");
  size_t count = 0;
  while (words[count]) ++count;
  if (!client || own_path[0] == '\0' || std::strcmp(path, own_path) != 0 || count == 0 || count > kMost)
    return usual_exec(path, words, variables);
  with_client[0] = const_cast<char*>(client);
  with_client[1] = const_cast<char*>(path);
  std::memcpy(with_client + 2, words + 1, count * sizeof *words);  // the null behind the words, too
  return usual_exec(client, with_client, variables);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int execve(const char* path, char* const* words,
                                                             char* const* variables) noexcept {
  return exec_or_fork(path, words, variables);
}

extern "C" __attribute__((visibility("default"))) int execv(const char* path, char* const* words) noexcept {
  return exec_or_fork(path, words, environ);
}

extern "C" __attribute__((visibility("default"))) int __libc_start_main(Main main, int count, char** words,
                                                                        void (*init)(), void (*fini)(),
                                                                        void (*unload)(), void* stack) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  program_main = main;
  usual_exec = reinterpret_cast<Exec>(dlsym(RTLD_NEXT, "execve"));
  return start(std::getenv("FUNICULAR_FORK_SERVER") ? serve : main, count, words, init, fini, unload, stack);
}
