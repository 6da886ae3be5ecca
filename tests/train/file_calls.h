#pragma once
// The calls with which a process changes files, seen and if asked for ended or refused: the test program's
// own open, write, fsync, rename … take the place of the C library's, for our library and all others.

#include <functional>
#include <string>
#include <vector>

namespace funicular::test {

struct FileCall {
  std::string name;  ///< "open" (only to write), "write", "fsync", "rename", "mkdir", "unlink" …
  std::string path;  ///< of what is changed; for rename the old name
  std::string to;    ///< for rename the new name

  bool renames() const { return name.starts_with("rename"); }
};

/// Watches all calls below a folder while it lives. One at a time, in processes whose files one thread
/// changes.
class FileCalls {
 public:
  explicit FileCalls(std::string folder);
  ~FileCalls();
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;

  /// Only the calls for which `counts` is true are seen.
  void only_where(std::function<bool()> counts);
  /// Before the call of number `count` (from 1) the process is killed; 0: never.
  void kill_at(int count);
  /// renameat2 says that it cannot exchange names, as some file systems do.
  void refuse_exchange();
  /// rename() of this path fails with EIO.
  void refuse_rename_of(std::string path);
  /// flock fails with this errno value.
  void refuse_locks(int error);
  const std::vector<FileCall>& seen() const;
};

}  // namespace funicular::test
