#include "file_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace funicular::test {

namespace {

struct Watch {
  std::string folder;  ///< with a slash at its end; empty: nothing is watched
  int kill_at = 0;
  bool refuses_exchange = false;
  std::string refused;  ///< rename() of it fails
  int lock_error = 0;
  std::function<bool()> counts;
  std::vector<FileCall> seen;
  std::mutex mutex;
};

Watch& watch() {
  static Watch* const it = new Watch;  // outlives the last call
  return *it;
}

volatile bool watching = false;

/// An absolute path as it stands; what lies in another folder than the present one is not told apart.
std::string path_at(int folder, const char* path) {
  if (path[0] == '/' || folder == AT_FDCWD) return path;
  char buffer[4096];
  const ssize_t size =
      ::readlink(("/proc/self/fd/" + std::to_string(folder)).c_str(), buffer, sizeof buffer - 1);
  return size < 0 ? path : std::string(buffer, static_cast<size_t>(size)) + "/" + path;
}

std::string path_of(int descriptor) {
  std::string path = path_at(descriptor, "");
  if (path.ends_with('/')) path.pop_back();
  return path;
}

void note(const char* name, const std::string& path, const std::string& to = {}) {
  Watch& it = watch();
  const std::lock_guard lock(it.mutex);
  if (!watching || !(path + "/").starts_with(it.folder) || (it.counts && !it.counts())) return;
  it.seen.push_back({name, path, to});
  if (it.kill_at > 0 && it.seen.size() == static_cast<size_t>(it.kill_at)) ::raise(SIGKILL);
}

/// The last call changed nothing.
void forget_last() {
  Watch& it = watch();
  const std::lock_guard lock(it.mutex);
  if (!it.seen.empty() && it.seen.back().name == "renameat2") it.seen.pop_back();
}

}  // namespace

FileCalls::FileCalls(std::string folder) {
  watch().folder = std::move(folder) + "/";
  watch().kill_at = 0;
  watch().refuses_exchange = false;
  watch().refused.clear();
  watch().lock_error = 0;
  watch().counts = nullptr;
  watch().seen.clear();
  watching = true;
}

FileCalls::~FileCalls() {
  watching = false;
}

void FileCalls::only_where(std::function<bool()> counts) {
  watch().counts = std::move(counts);
}

void FileCalls::kill_at(int count) {
  watch().kill_at = count;
}

void FileCalls::refuse_exchange() {
  watch().refuses_exchange = true;
}

void FileCalls::refuse_rename_of(std::string path) {
  watch().refused = std::move(path);
}

void FileCalls::refuse_locks(int error) {
  watch().lock_error = error;
}

const std::vector<FileCall>& FileCalls::seen() const {
  return watch().seen;
}

}  // namespace funicular::test

using funicular::test::forget_last;
using funicular::test::note;
using funicular::test::path_at;
using funicular::test::path_of;
using funicular::test::watch;
using funicular::test::watching;

#define NEXT(function) reinterpret_cast<decltype(&::function)>(::dlsym(RTLD_NEXT, #function))

// The C library's names; what they declare as "nonnull" and "noexcept" must be repeated as it is.
#pragma GCC visibility push(default)
extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (watching && (flags & O_ACCMODE) != O_RDONLY) note("open", path_at(AT_FDCWD, path));
  static const auto next = NEXT(open);
  return next(path, flags, mode);
}

ssize_t write(int descriptor, const void* data, size_t size) {
  if (watching) note("write", path_of(descriptor));
  static const auto next = NEXT(write);
  return next(descriptor, data, size);
}

ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  if (watching) note("write", path_of(descriptor));
  static const auto next = NEXT(pwrite);
  return next(descriptor, data, size, offset);
}

int truncate(const char* path, off_t size) noexcept {
  if (watching) note("truncate", path_at(AT_FDCWD, path));
  static const auto next = NEXT(truncate);
  return next(path, size);
}

int fsync(int descriptor) {
  if (watching) note("fsync", path_of(descriptor));
  static const auto next = NEXT(fsync);
  return next(descriptor);
}

int rename(const char* from, const char* to) noexcept {
  if (watching && watch().refused == path_at(AT_FDCWD, from)) {
    errno = EIO;
    return -1;
  }
  if (watching) note("rename", path_at(AT_FDCWD, from), path_at(AT_FDCWD, to));
  static const auto next = NEXT(rename);
  return next(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  if (watching) {
    if (watch().refuses_exchange) {
      errno = EINVAL;
      return -1;
    }
    note("renameat2", path_at(from_folder, from), path_at(to_folder, to));
  }
  static const auto next = NEXT(renameat2);
  const int result = next(from_folder, from, to_folder, to, flags);
  if (watching && result != 0) forget_last();
  return result;
}

int flock(int descriptor, int operation) noexcept {
  if (watching && watch().lock_error != 0) {
    errno = watch().lock_error;
    return -1;
  }
  static const auto next = NEXT(flock);
  return next(descriptor, operation);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (watching) note("mkdir", path_at(AT_FDCWD, path));
  static const auto next = NEXT(mkdir);
  return next(path, mode);
}

int unlink(const char* path) noexcept {
  if (watching) note("unlink", path_at(AT_FDCWD, path));
  static const auto next = NEXT(unlink);
  return next(path);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if (watching) note("unlink", path_at(folder, path));
  static const auto next = NEXT(unlinkat);
  return next(folder, path, flags);
}

int remove(const char* path) noexcept {
  if (watching) note("unlink", path_at(AT_FDCWD, path));
  static const auto next = NEXT(remove);
  return next(path);
}

int rmdir(const char* path) noexcept {
  if (watching) note("unlink", path_at(AT_FDCWD, path));
  static const auto next = NEXT(rmdir);
  return next(path);
}

}  // extern "C"
#pragma GCC visibility pop
