#pragma once
// Files and folders that get their name when they are complete. Until then they are beside their place, under a name
// that nobody can guess. It contains the name of the place, so that the next run finds what a killed process has left.

#include <string_view>
#include <vector>

#include "funicular/base/file.h"

namespace funicular {

/// Prefix of the names of temporaries.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

/// A new name beside `place`: "FOLDER/.tmp-NAME-0123456789abcdef", the digits random.
fs::path temporary_name(const fs::path& place);

/// Makes an empty folder with such a name. Throws RunError.
fs::path make_temporary_folder(const fs::path& place);

/// An empty file or folder with such a name, which becomes `place`. It is locked while its process lives, so that
/// other processes can tell what a killed process has left. A signal that ends the process removes it too, if
/// end_on_signals() has been called.
class Temporary {
 public:
  enum class Kind { file, folder };
  /// Removes the abandoned temporaries of `place` first; a process lists each folder once for them, and later processes
  /// find what is left there afterwards. `mode`: the folder's rights, before the umask. Throws RunError.
  Temporary(const fs::path& place, Kind kind, unsigned mode = 0777);
  /// Removes it, unless it has been put in place.
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const fs::path& path() const { return path_; }
  /// Gives a file that has been written and flushed the name `place`, whatever has that name. Throws RunError.
  void rename_file();
  /// Gives a folder the name `place`, as put_in_place does. Throws RunError, also if a folder has the name by now.
  void rename_folder();

 private:
  void make(Kind kind, unsigned mode);
  void forget();
  fs::path place_, path_;
  int lock_ = -1, slot_ = -1;
};

/// Removes the temporaries of `place` whose processes are gone. One that another process holds stays, and so does each
/// where the file system has no locks.
void remove_abandoned(const fs::path& place);

/// From now on, one of kStopSignals that nobody handles or ignores removes the temporaries of this process. It ends
/// the process with ExitCode::interrupted and a message, unless `quiet`. Only programs call this, if their files
/// get their names when complete, so that the same command can be run again. A library leaves signals to its
/// program.
void end_on_signals(bool quiet);

/// Lets one process at a time work in a folder, until the object or the process is gone.
class FolderLock {
 public:
  /// Throws InputError "[component] another process works in FOLDER now; …" if another process has the lock.
  FolderLock(const fs::path& folder, std::string_view component);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// The temporaries of `place`. Only a process that alone may write `place` knows that killed processes have left them;
/// others call remove_abandoned.
std::vector<fs::path> temporaries_of(const fs::path& place);

/// Flushes all files and folders of `temporary`, makes it appear as the folder `place` in one step, and flushes the
/// folder that holds both. A folder that is already at `place` changes places with it. If the system cannot
/// exchange two names, the earlier folder is renamed first, and `place` does not exist for a moment. Returns the
/// new path of the earlier folder, a temporary of `place` too; an empty path if there was none. Throws RunError;
/// then `place` is as it was.
fs::path put_in_place(const fs::path& temporary, const fs::path& place);

}  // namespace funicular
