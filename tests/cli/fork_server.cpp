// Loaded before the program (LD_PRELOAD): loads the program's libraries once, that of its commands with LibTorch included,
// and runs its main() in a fork for each
// command that comes over a socket. Of a short command, loading LibTorch is most of the time, and the tests of the
// command line run thousands of short commands. What runs is the program itself, with the words, the environment, the
// folder and the streams of each command.
//
// A request is 8 bytes (the length of what follows) with three descriptors (standard input, output and error), and then
// strings that each end with a zero byte: the folder, the number of words, the words, the variables.
// The answer is the process's number at its start, and its wait status at its end, 4 bytes each.

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
Main program_main = nullptr;

[[noreturn]] void stop(const char* what) {
  dprintf(2, "fork_server: %s: %s\n", what, std::strerror(errno));
  _exit(99);
}

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

bool receive(int socket, Request& request) {
  uint64_t length = 0;
  iovec part{&length, sizeof length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof request.streams)];
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
  if (got == 0) return false;
  if (got != sizeof length || !CMSG_FIRSTHDR(&message)) stop("a request without its head");
  std::memcpy(request.streams, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof request.streams);
  request.text.resize(length);
  return read_fully(socket, request.text.data(), length);
}

/// In the fork: becomes the command, as exec would.
int become(Request& request) {
  char* at = request.text.data();
  char* const end = at + request.text.size();
  const auto next = [&] {
    char* const found = at;
    at += std::strlen(at) + 1;
    return found;
  };
  for (int stream = 0; stream < 3; ++stream)
    if (dup2(request.streams[stream], stream) < 0) stop("dup2");
  if (chdir(next()) != 0) stop("chdir");
  const int count = std::atoi(next());
  // One behind the other in one block, as the kernel lays them.
  std::vector<char*> words;
  for (int word = 0; word < count; ++word) words.push_back(next());
  words.push_back(nullptr);
  clearenv();
  while (at < end) putenv(next());
  return program_main(count, words.data(), environ);
}

int serve(int, char**, char**) {
  const int socket = std::atoi(std::getenv("FUNICULAR_FORK_SERVER"));
  if (void* const load = dlsym(RTLD_DEFAULT, "funicular_load_commands")) reinterpret_cast<void (*)()>(load)();
  for (Request request; receive(socket, request);) {
    const pid_t child = fork();
    if (child < 0) stop("fork");
    if (child == 0) {
      close(socket);
      std::exit(become(request));
    }
    for (const int stream : request.streams) close(stream);
    int32_t answer = child;
    if (write(socket, &answer, sizeof answer) != sizeof answer) stop("write");
    while (waitpid(child, &answer, 0) < 0)
      if (errno != EINTR) stop("waitpid");
    if (write(socket, &answer, sizeof answer) != sizeof answer) stop("write");
  }
  _exit(0);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int __libc_start_main(Main main, int count, char** words,
                                                                        void (*init)(), void (*fini)(),
                                                                        void (*unload)(), void* stack) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  program_main = main;
  return start(std::getenv("FUNICULAR_FORK_SERVER") ? serve : main, count, words, init, fini, unload, stack);
}
