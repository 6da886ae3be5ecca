#include "funicular/base/temporary.h"

#include "funicular/base/temporary_registry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace funicular {

namespace {

/// `path` without a slash at its end, so that it has a name and a folder.
fs::path trimmed(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

RunError cannot_rename(const fs::path& from, const fs::path& to, int error) {
  return RunError("file", "cannot rename {} to {}: {}", from.string(), to.string(), errno_text(error));
}

void sync_tree(const fs::path& folder) {
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_directory() && !entry.is_regular_file())
        throw RunError("file", "{} is neither a file nor a folder", entry.path().string());
      sync_path(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw RunError("file", "cannot list {}: {}", folder.string(), error.code().message());
  }
  sync_path(folder);
}

/// Whether the open file is still the one of this name.
bool is_named(int descriptor, const fs::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

bool is_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/// Returns the entries of a folder whose names have the prefix of temporaries.
std::vector<fs::path> list_temporaries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(kTemporaryPrefix)) found.push_back(entry->path());
  return found;
}

/// Whether the name is that of a temporary of `place`.
bool is_temporary_of(const fs::path& path, const fs::path& place) {
  const std::string name = path.filename().string(),
                    start = fmt::format("{}{}-", kTemporaryPrefix, place.filename().string());
  return name.starts_with(start) && name.size() == start.size() + 16 &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(start.size()), name.end(), is_digit);
}

/// The temporaries of `place` that were there when this process first asked for its folder. A folder may have many
/// entries, and files are written into it again and again.
std::vector<fs::path> first_temporaries_of(const fs::path& place) {
  static std::mutex mutex;
  static std::map<std::tuple<fs::path, dev_t, ino_t>, std::vector<fs::path>> known;
  const fs::path named = trimmed(place), folder = folder_of(named);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return {};
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace({fs::absolute(folder), status.st_dev, status.st_ino});
  if (is_new) found->second = list_temporaries(folder);
  std::vector<fs::path> own;
  for (const fs::path& path : found->second)
    if (is_temporary_of(path, named)) own.push_back(folder / path.filename());
  return own;
}

/// Removes the temporaries whose processes are gone.
void remove_unlocked(const std::vector<fs::path>& temporaries) {
  for (const fs::path& path : temporaries) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) continue;
    struct stat status {};
    std::error_code ignored;
    if (::fstat(descriptor, &status) == 0 && status.st_uid == ::geteuid() &&
        ::flock(descriptor, LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(path, ignored);
    ::close(descriptor);
  }
}

/// For systems that cannot exchange two names. A kill between the renames leaves two whole temporaries.
fs::path replace_in_two_steps(const fs::path& temporary, const fs::path& place) {
  const fs::path aside = temporary_name(place);
  if (::rename(place.c_str(), aside.c_str()) != 0) throw cannot_rename(place, aside, errno);
  if (::rename(temporary.c_str(), place.c_str()) != 0) {
    const int error = errno;
    ::rename(aside.c_str(), place.c_str());
    throw cannot_rename(temporary, place, error);
  }
  return aside;
}

}  // namespace

fs::path temporary_name(const fs::path& place) {
  uint64_t digits = 0;
  while (::getrandom(&digits, sizeof digits, 0) != sizeof digits)
    if (errno != EINTR) throw RunError("file", "no random number for a name: {}", errno_text(errno));
  const fs::path named = trimmed(place);
  return named.parent_path() /
         fmt::format("{}{}-{:016x}", kTemporaryPrefix, named.filename().string(), digits);
}

fs::path make_temporary_folder(const fs::path& place) {
  fs::path path = temporary_name(place);
  if (::mkdir(path.c_str(), 0777) != 0) throw write_error(path, errno);
  return path;
}

Temporary::Temporary(const fs::path& place, Kind kind, unsigned mode) : place_(place) {
  remove_unlocked(first_temporaries_of(place));
  try {
    make(kind, mode);
  } catch (...) {
    forget();
    throw;
  }
}

/// Tries again if another process removed the new entry as abandoned before it was locked.
void Temporary::make(Kind kind, unsigned mode) {
  while (true) {
    path_ = temporary_name(place_);
    unregister_temporary(slot_);
    slot_ = register_temporary(path_);  // before it is there: a signal may come at once
    if (kind == Kind::folder && ::mkdir(path_.c_str(), mode) != 0) throw write_error(path_, errno);
    const int flags = kind == Kind::folder ? O_RDONLY | O_DIRECTORY : O_RDWR | O_CREAT | O_EXCL;
    lock_ = ::open(path_.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0644);
    const int error = errno;
    if (lock_ < 0 && kind == Kind::folder) ::rmdir(path_.c_str());
    if (lock_ < 0 && error == ENOENT && kind == Kind::folder) continue;
    if (lock_ < 0) throw write_error(place_, error);
    // Some file systems have no locks; nothing is removed there. If another process has the lock, it is about to
    // remove this entry.
    const bool taken = ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!taken && is_named(lock_, path_)) return;
    ::close(std::exchange(lock_, -1));
  }
}

Temporary::~Temporary() {
  if (!path_.empty()) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  forget();
}

void Temporary::forget() {
  unregister_temporary(std::exchange(slot_, -1));
  path_.clear();
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
}

void Temporary::rename_file() {
  if (::rename(path_.c_str(), place_.c_str()) != 0) throw write_error(place_, errno);
  forget();
  sync_path(folder_of(trimmed(place_)));
}

void Temporary::rename_folder() {
  const fs::path earlier = put_in_place(path_, place_);
  if (!earlier.empty()) {  // another process was quicker: its folder stays
    put_in_place(earlier, place_);
    throw RunError("file", "{} has been made meanwhile by another process; choose another folder",
                   place_.string());
  }
  forget();
}

void remove_abandoned(const fs::path& place) {
  remove_unlocked(temporaries_of(place));
}

FolderLock::FolderLock(const fs::path& folder, std::string_view component)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw write_error(folder, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;  // or: no locks here
  ::close(std::exchange(descriptor_, -1));
  throw InputError(component, "another process works in {} now; wait for its end, or choose another place",
                   folder.string());
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::vector<fs::path> temporaries_of(const fs::path& place) {
  const fs::path named = trimmed(place);
  std::vector<fs::path> found = list_temporaries(folder_of(named));
  std::erase_if(found, [&](const fs::path& path) { return !is_temporary_of(path, named); });
  return found;
}

fs::path put_in_place(const fs::path& temporary, const fs::path& place) {
  sync_tree(temporary);
  fs::path earlier;
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0)
    earlier = temporary;
  else if (errno == ENOENT) {
    if (::rename(temporary.c_str(), place.c_str()) != 0) throw cannot_rename(temporary, place, errno);
  } else if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(place, ignored)))
      earlier = replace_in_two_steps(temporary, place);
    else if (::rename(temporary.c_str(), place.c_str()) != 0)
      throw cannot_rename(temporary, place, errno);
  } else {
    throw cannot_rename(temporary, place, errno);
  }
  sync_path(folder_of(trimmed(place)));
  return earlier;
}

}  // namespace funicular
