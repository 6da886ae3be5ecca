#include "funicular/base/mapped_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "funicular/base/columnar_file.h"
#include "funicular/base/decompressor.h"
#include "funicular/base/error.h"
#include "funicular/base/foreign_file.h"
#include "funicular/base/log.h"
#include "funicular/base/text_encoding.h"

namespace funicular {

namespace {

/// A file without a name: it is gone when the last mapping of it is.
class NamelessFile {
 public:
  NamelessFile() {
    std::error_code error;
    const fs::path folder = fs::temp_directory_path(error);
    if (error)
      throw InputError("file", "TMPDIR names no folder ({}); a copy of the text is to lie there",
                       error.message());
    std::string name = (folder / "funicular-text-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) throw write_error(name, errno);
    ::unlink(name.c_str());
    name_ = std::move(name);
  }
  ~NamelessFile() { ::close(descriptor_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  void write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw write_error(name_, errno);
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  int descriptor() const { return descriptor_; }
  MappedFile map() const { return MappedFile(fmt::format("/proc/self/fd/{}", descriptor_)); }

 private:
  std::string name_;
  int descriptor_;
};

/// A copy of what the bytes are compressed from.
MappedFile unpacked(std::string_view bytes, Compression compression, const std::string& name) {
  const NamelessFile file;
  Decompressor unpacker(compression, name);
  unpacker.give(bytes);
  for (std::string_view text = unpacker.take(); !text.empty(); text = unpacker.take()) file.write(text);
  unpacker.finish();
  return file.map();
}

/// The rows of a file of Parquet or Arrow, as JSON lines. They stay until the process ends, so that each file is
/// converted once. Throws InputError also if no Python has pyarrow.
MappedFile rows_of(const fs::path& path, std::string_view bytes, const std::string& name) {
  using Version = std::tuple<dev_t, ino_t, off_t, time_t, int64_t>;
  static std::mutex mutex;
  static std::map<Version, std::unique_ptr<const NamelessFile>> converted;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw InputError("file", "cannot read {}: {}", name, errno_text(errno));
  const std::lock_guard lock(mutex);
  auto& rows = converted[{status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec,
                          status.st_mtim.tv_nsec}];
  if (!rows) {
    auto file = std::make_unique<const NamelessFile>();
    if (!write_json_lines(path, name, file->descriptor())) refuse_foreign(bytes, name);
    rows = std::move(file);
  }
  return rows->map();
}

/// A copy of the bytes in UTF-8, in which \r is \n if `lone_returns`.
MappedFile converted(std::string_view bytes, const std::string& encoding, bool lone_returns) {
  const NamelessFile file;
  std::optional<TextConverter> converter;
  if (!is_utf8_name(encoding)) converter.emplace(encoding);
  constexpr size_t kPiece = 1 << 20;
  std::string utf8;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::string_view piece = bytes.substr(at, kPiece);
    utf8.clear();
    if (converter)
      converter->convert(piece, utf8);
    else
      utf8 = piece;
    if (converter && at + piece.size() == bytes.size()) converter->finish(utf8);
    if (lone_returns) std::replace(utf8.begin(), utf8.end(), '\r', '\n');
    file.write(utf8);
  }
  return file.map();
}

std::string checked(std::string text, const fs::path& path, std::string_view expected) {
  refuse_foreign(text, path.string(), expected);
  refuse_wide_text(text, path.string(), /*has_option=*/false);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (!has_lone_returns(text)) return text;
  note_lone_returns(path.string());
  std::replace(text.begin(), text.end(), '\r', '\n');
  return text;
}

}  // namespace

bool has_lone_returns(std::string_view text) {
  if (text.find('\n') != text.npos) return false;
  const size_t first = text.find('\r');
  return first != text.npos && text.find_first_not_of('\r', first) != text.npos;
}

void note_lone_returns(const std::string& name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(name).second)
    log::info("{}: its lines end in CR alone, as on old Macs, and are read so", name);
}

void refuse_wide_text(std::string_view begin, const std::string& name, bool has_option) {
  const std::string wide = wide_encoding(begin);
  if (wide.empty()) return;
  if (has_option)
    throw InputError("text",
                     "{}: the file is in {}; expected UTF-8: --encoding {} converts it while it is read",
                     name, wide, wide);
  throw InputError("text",
                   "{}: the file is in {}; expected UTF-8: convert it with iconv -f {} -t UTF-8 {} > {}.utf8",
                   name, wide, wide, name, name);
}

MappedText::MappedText(const fs::path& path, const std::string& encoding, std::string name) : file_(path) {
  if (name.empty()) name = path.string();
  const Compression compression = compression_of(file_.text());
  if (compression != Compression::none) file_ = unpacked(file_.text(), compression, name);
  if (has_columnar_name(name) && is_columnar(file_.text())) {
    if (compression != Compression::none)
      throw InputError("file", "{}: it is compressed as a whole; unpack it first", name);
    file_ = rows_of(path, file_.text(), name);
    return;
  }
  const bool given = !is_utf8_name(encoding);
  if (!given || unit_of(encoding) == 1) refuse_foreign(file_.text(), name);
  if (has_columnar_name(name))
    throw InputError("file",
                     "{}: it does not begin as a Parquet or Arrow file does; if it is text, let its name "
                     "end in .csv, .tsv or .jsonl",
                     name);
  if (!given) refuse_wide_text(file_.text(), name);
  if (given) file_ = converted(file_.text(), encoding, false);
  if (!has_lone_returns(content())) return;
  note_lone_returns(name);
  file_ = converted(file_.text(), "", true);
}

std::string_view MappedText::content() const {
  std::string_view text = file_.text();
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

std::string read_text(const fs::path& path, std::string_view expected) {
  return checked(read_file(path), path, expected);
}

std::string read_text_or_pipe(const fs::path& path, std::string_view expected) {
  return checked(read_file_or_pipe(path), path, expected);
}

}  // namespace funicular
