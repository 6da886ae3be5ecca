#include "funicular/base/file.h"

#include "funicular/base/error.h"
#include "funicular/base/temporary.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace funicular {

namespace {

/// Returns advice for a write that failed; "" if the system's message says it all.
std::string_view remedy_of_write(int error) {
  switch (error) {
    case ENOSPC:
      return "; free some space on this disk, or choose a folder on another one";
    case EDQUOT:
      return "; your quota on this disk is used up: remove files, or choose a folder on another one";
    case EFBIG:
      return "; the file is larger than this file system or your limits (ulimit -f) allow";
    case EROFS:
      return "; this file system is mounted read-only: choose a folder on another one";
    case EACCES:
    case EPERM:
      return "; choose a folder that you may write to, or change the rights of this one";
    case EISDIR:
      return "; a folder of this name is in the way: remove it, or choose another name";
    case ENOTDIR:
      return "; a part of this path is a file: remove it, or choose another path";
    case ENOENT:
      return "; make its folder first";
    case ELOOP:
      return "; a symbolic link of this name is in the way: remove it, or choose another name";
    case EMFILE:
      return "; allow this process more open files (ulimit -n)";
    default:
      return "";
  }
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

enum class FileKind { regular, any };  // a folder is of neither

int open_to_read(const fs::path& path, FileKind kind) {
  // A pipe is opened at once, whether or not somebody writes to it, and then refused.
  const int flags = kind == FileKind::regular ? O_NONBLOCK : 0;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  const int error = errno;
  if (descriptor < 0 &&
      (error == EMFILE || error == ENFILE || error == ENOMEM))  // nothing is wrong with the file
    throw RunError("file", "cannot read {}: {}{}", path.string(), errno_text(error), remedy_of_write(error));
  if (descriptor < 0) throw InputError("file", "cannot read {}: {}", path.string(), errno_text(error));
  return descriptor;
}

uint64_t size_of(int descriptor, const fs::path& path, FileKind kind) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw InputError("file", "{}: {}", path.string(), errno_text(errno));
  if (S_ISDIR(status.st_mode)) throw InputError("file", "{}: expected a file, found a folder", path.string());
  if (kind == FileKind::regular && !S_ISREG(status.st_mode))
    throw InputError("file",
                     "{}: expected a regular file, found {}; write its contents to a file, and give that",
                     path.string(), kind_of(status.st_mode));
  return static_cast<uint64_t>(status.st_size);
}

int flags_of(Opening opening) {
  switch (opening) {
    case Opening::replace:
      return O_TRUNC | O_NOFOLLOW;
    case Opening::fresh:
      return O_EXCL | O_NOFOLLOW;
    case Opening::go_on:
      return O_APPEND | O_NOFOLLOW;
    case Opening::follow:
      return O_TRUNC;
  }
  return O_EXCL;
}

std::string read_whole(const fs::path& path, FileKind kind) {
  const Descriptor file(open_to_read(path, kind));
  std::string contents;
  contents.reserve(size_of(file.get(), path, kind));
  char buffer[1 << 16];
  for (;;) {  // not one read of the stated size: pipes and /proc state 0
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw InputError("file", "cannot read {}: {}", path.string(), errno_text(errno));
    if (count == 0) return contents;
    contents.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace

RunError write_error(const fs::path& path, int error) {
  return RunError("file", "cannot write {}: {}{}", path.string(), errno_text(error), remedy_of_write(error));
}

std::string read_file(const fs::path& path) {
  return read_whole(path, FileKind::regular);
}

std::string read_file_or_pipe(const fs::path& path) {
  return read_whole(path, FileKind::any);
}

void sync_path(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || ::fsync(file.get()) != 0)
    throw RunError("file", "cannot flush {} to the disk: {}", path.string(), errno_text(errno));
}

fs::path existing_part(const fs::path& path) {
  std::error_code ignored;
  fs::path part = fs::absolute(path, ignored);
  while (part.has_relative_path() && !fs::exists(part, ignored)) part = part.parent_path();
  return part;
}

void make_directories(const fs::path& folder) {
  std::error_code error, ignored;
  if (fs::is_directory(folder, ignored)) return;
  fs::path part = existing_part(folder);
  fs::create_directories(folder, error);
  if (fs::is_directory(folder, ignored)) {
    const fs::path made = fs::absolute(folder, ignored).lexically_normal().lexically_relative(part);
    for (const fs::path& name : made) {  // each new name stands in the folder above it
      sync_path(part);
      part /= name;
    }
    return;
  }
  part = existing_part(folder);
  if (fs::exists(part, ignored) && !fs::is_directory(part, ignored))
    throw InputError("file", "cannot make the folder {}: {} is a file; remove it, or choose another path",
                     folder.string(), part.string());
  throw RunError("file", "cannot make the folder {}: {}{}", folder.string(),
                 error ? error.message() : "it was removed at once", remedy_of_write(error.value()));
}

void write_file_atomically(const fs::path& path, std::string_view contents) {
  Temporary temporary(path, Temporary::Kind::file);
  FileWriter writer(temporary.path(), Opening::replace, path);
  writer.write(contents);
  writer.close(/*sync=*/true);
  temporary.rename_file();
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file(open_to_read(path, FileKind::regular));
  size_ = size_of(file.get(), path, FileKind::regular);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) throw InputError("file", "cannot map {}: {}", path.string(), errno_text(errno));
  data_ = data;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::advise_sequential() const {
  if (data_) ::madvise(data_, size_, MADV_SEQUENTIAL);
}

FileWriter::FileWriter(const fs::path& path, Opening opening, const fs::path& becomes)
    : named_(becomes.empty() ? path : becomes),
      descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags_of(opening), 0644)) {
  if (descriptor_ < 0) throw write_error(named_, errno);
  buffer_.reserve(1 << 20);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* data, size_t size) {
  position_ += size;
  if (buffer_.size() + size > (1 << 20)) flush();
  if (size <= (1 << 20)) {
    buffer_.append(static_cast<const char*>(data), size);
    return;
  }
  const char* cursor = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::write(descriptor_, cursor, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw write_error(named_, errno);
    cursor += count;
    size -= static_cast<size_t>(count);
  }
}

void FileWriter::cut(uint64_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) throw write_error(named_, errno);
}

void FileWriter::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t count = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw write_error(named_, errno);
    done += static_cast<size_t>(count);
  }
  buffer_.clear();
}

void FileWriter::close(bool sync) {
  flush();
  if (sync && ::fsync(descriptor_) != 0) throw write_error(named_, errno);
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) throw write_error(named_, errno);
}

}  // namespace funicular
