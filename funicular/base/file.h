#pragma once
// Files: read whole, mapped, and written so that a crash never leaves half a file under the final name.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "funicular/base/error.h"

namespace funicular {

namespace fs = std::filesystem;

/// The error of a write to `path` that ended with the errno value `error`: what the system says, and what to
/// do.
RunError write_error(const fs::path& path, int error);

/// Reads the whole file. Throws InputError if it cannot be read, or is no regular file: a pipe that nobody writes
/// to would block forever.
std::string read_file(const fs::path& path);
/// As read_file, but also reads a pipe or a device, as the shell gives for <(…). Reads it once.
std::string read_file_or_pipe(const fs::path& path);

/// Writes `contents` to a temporary file beside `path` (base/temporary.h), flushes it to the disk, renames it
/// over `path`, flushes the folder. Throws RunError; then `path` is as it was.
void write_file_atomically(const fs::path& path, std::string_view contents);

/// Flushes a file's or folder's contents to the disk.
void sync_path(const fs::path& path);

/// `path`, absolute, or the nearest folder above it that exists.
fs::path existing_part(const fs::path& path);

/// Makes the folder and its parents, unless they exist, and flushes the folders that hold new ones. Throws
/// InputError if a file is in the way, RunError where the system refuses.
void make_directories(const fs::path& folder);

/// A read-only mapping of a whole file. An empty file gives an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  /// Throws InputError if the file cannot be opened, or is no regular file.
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }
  std::string_view text() const { return {static_cast<const char*>(data_), size_}; }
  /// The contents as an array of T; the size must be a multiple of sizeof(T) (the caller checks).
  template <class T>
  std::span<const T> as() const {
    return {static_cast<const T*>(data_), size_ / sizeof(T)};
  }
  /// Tells the kernel that access will be sequential: it reads ahead.
  void advise_sequential() const;

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// How a file to be written is opened.
enum class Opening {
  replace,  ///< a file of the name is emptied; a symbolic link is refused
  fresh,    ///< the file must be new; whatever has the name is refused
  go_on,    ///< appends to a file of the name; a symbolic link is refused
  follow    ///< as `replace`, and through symbolic links: for a name that a person gave
};

/// Sequential buffered writer over a file descriptor; every failure (disk full, quota) throws RunError with
/// the path and a remedy.
class FileWriter {
 public:
  /// `becomes` is what errors name where the file is a temporary one that takes another's place.
  explicit FileWriter(const fs::path& path, Opening opening = Opening::replace, const fs::path& becomes = {});
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Bytes written by this writer.
  uint64_t position() const { return position_; }
  /// Keeps only the first `size` bytes of a file that was opened to continue. Before anything is written.
  void cut(uint64_t size);
  /// Hands the buffer to the system, so that other processes see it.
  void flush();
  /// Flushes the buffer and, if `sync`, the disk; then closes. Without it the destructor closes and ignores
  /// errors.
  void close(bool sync);

 private:
  fs::path named_;
  int descriptor_ = -1;
  std::string buffer_;
  uint64_t position_ = 0;
};

}  // namespace funicular
