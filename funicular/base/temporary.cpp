#include "funicular/base/temporary.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

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

std::vector<fs::path> temporaries_of(const fs::path& place) {
  const fs::path named = trimmed(place);
  const std::string start = fmt::format("{}{}-", kTemporaryPrefix, named.filename().string());
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(named), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(start) && name.size() == start.size() + 16) found.push_back(entry->path());
  }
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
