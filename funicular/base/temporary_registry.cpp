#include "funicular/base/temporary_registry.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "funicular/base/error.h"
#include "funicular/base/interrupt.h"
#include "funicular/base/temporary.h"

namespace funicular {

namespace {

constexpr int kSlots = 64, kDeepest = 32;

struct Slot {
  std::atomic<int> owner{0};  ///< the process, or 0: free
  char path[PATH_MAX];
};
Slot slots[kSlots];
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may only use lock-free atomics");

/// The record that getdents64 writes for a name.
struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  uint16_t size;
  uint8_t type;
  char name[1];
};

// Only async-signal-safe calls from here on.

void remove_tree(int folder, const char* name, int depth) {
  if (::unlinkat(folder, name, 0) == 0 || depth > kDeepest) return;
  const int opened = ::openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return;
  alignas(DirectoryEntry) char buffer[2048];
  for (long size; (size = ::syscall(SYS_getdents64, opened, buffer, sizeof buffer)) > 0;)
    for (long at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer + at);
      const char* const found = buffer + at + offsetof(DirectoryEntry, name);
      if (std::strcmp(found, ".") != 0 && std::strcmp(found, "..") != 0)
        remove_tree(opened, found, depth + 1);
      at += entry->size;
    }
  ::close(opened);
  ::unlinkat(folder, name, AT_REMOVEDIR);
}

std::atomic<bool> is_quiet{false};

void remove_all_and_end(int) {
  const int self = ::getpid();                   // a fork has its parent's registry, and leaves it alone
  for (int attempt = 0; attempt < 3; ++attempt)  // other threads may still write
    for (Slot& slot : slots)
      if (slot.owner.load() == self) remove_tree(AT_FDCWD, slot.path, 0);
  constexpr char kMessage[] =
      "\nfunicular: interrupted; nothing unfinished is left, run the same command again\n";
  // At a terminal the shell shows ^C, or a progress line stands there.
  const size_t begin = ::isatty(STDERR_FILENO) == 1 ? 0 : 1;
  if (!is_quiet) {
    [[maybe_unused]] const ssize_t ignored =
        ::write(STDERR_FILENO, kMessage + begin, sizeof kMessage - 1 - begin);
  }
  ::_exit(static_cast<int>(ExitCode::interrupted));
}

}  // namespace

int register_temporary(const fs::path& path) {
  std::error_code ignored;
  const std::string name = fs::absolute(path, ignored).string();
  if (name.size() >= PATH_MAX) return -1;
  for (int i = 0; i < kSlots; ++i) {
    int free = 0;
    // -1 while the path is written: the handler must not read half of it.
    if (!slots[i].owner.compare_exchange_strong(free, -1)) continue;
    std::memcpy(slots[i].path, name.c_str(), name.size() + 1);
    slots[i].owner = ::getpid();
    return i;
  }
  return -1;
}

void unregister_temporary(int slot) {
  if (slot >= 0) slots[slot].owner = 0;
}

void end_on_signals(bool quiet) {
  is_quiet = quiet;
  for (const int signal : kStopSignals) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = remove_all_and_end;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace funicular
