#include "funicular/format/arriving_text.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/base/foreign_file.h"

namespace funicular::format {

namespace {

constexpr size_t kWideBytes = 4;  // show UTF-16 and UTF-32

}  // namespace

ArrivingText::ArrivingText(int descriptor, std::string name, std::string encoding)
    : descriptor_(descriptor),
      name_(std::move(name)),
      encoding_(std::move(encoding)),
      stream_(descriptor, name_) {}

void ArrivingText::map_regular_file() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode) ||
      ::lseek(descriptor_, 0, SEEK_CUR) != 0)
    return;
  is_file_ = true;
  std::array<char, 4> begin{};
  const ssize_t count = ::pread(descriptor_, begin.data(), begin.size(), 0);
  if (count > 0 && compression_of({begin.data(), static_cast<size_t>(count)}) != Compression::none) return;
  mapped_.emplace(fmt::format("/proc/self/fd/{}", descriptor_), encoding_, name_);
}

std::optional<std::string_view> ArrivingText::whole() const {
  return mapped_ ? std::optional(mapped_->content()) : std::nullopt;
}

/// Whether what has arrived may be the first part of a mark that shows another kind of file.
bool ArrivingText::may_begin_otherwise() const {
  if (may_be_foreign(buffer_)) return true;
  if (buffer_.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(buffer_)) return true;
  return buffer_.size() < kWideBytes &&
         buffer_.find_first_of(std::string_view("\xFF\xFE\0", 3)) != buffer_.npos;
}

void ArrivingText::begin() {
  map_regular_file();
  if (!mapped_ && !is_utf8_name(encoding_)) converter_.emplace(encoding_);
  while (!ended_ && may_begin_otherwise()) read();
  if (!mapped_) {
    if (is_file_)  // a compressed one
      refuse_foreign(buffer_, name_);
    else
      refuse_foreign_stream(buffer_, name_);
    // Looks at a fixed number of bytes, so that it does not matter how many have arrived.
    refuse_wide_text(std::string_view(buffer_).substr(0, kWideBytes), name_);
  }
  if (buffer_.starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
  if (!mapped_) settle_line_ends();
}

/// Lines of old Macs end in CR alone: without a line end in the first piece, a CR is one.
void ArrivingText::settle_line_ends() {
  const auto undecided = [&] {
    return unread().find('\n') == unread().npos && unread().find('\r') != unread().npos;
  };
  while (!ended_ && buffer_.size() < kPiece && undecided()) read();
  if (!has_lone_returns(unread())) return;
  note_lone_returns(name_);
  end_lines_alike(0);
  lone_returns_ = true;
}

/// Makes each CR from buffer_[from] on a line end.
void ArrivingText::end_lines_alike(size_t from) {
  std::replace(buffer_.begin() + static_cast<ptrdiff_t>(from), buffer_.end(), '\r', '\n');
}

bool ArrivingText::read() {
  buffer_.erase(0, begin_);
  base_ += begin_;
  begin_ = 0;
  const std::string_view piece = next_piece();
  ended_ = piece.empty();
  const size_t size = buffer_.size();
  if (!converter_)
    buffer_ += piece;
  else if (ended_)
    converter_->finish(buffer_);
  else
    converter_->convert(piece, buffer_);
  if (lone_returns_) {
    // A file is seen whole before this is decided, and its CRs would then be no line ends.
    if (buffer_.find('\n', size) != buffer_.npos)
      throw InputError(
          "text",
          "{}: its first lines end in CR alone, and a later one in LF; expected lines that end in one way. "
          "Write the text to a file and give that, or convert it first (tr '\\r' '\\n')",
          name_);
    end_lines_alike(size);
  }
  return !ended_;
}

/// The next bytes, valid until the next call; none at the end.
std::string_view ArrivingText::next_piece() {
  if (!mapped_) return stream_.read();
  if (stream_.stopped()) return {};
  const std::string_view piece = mapped_->text().substr(mapped_read_, kPiece);
  mapped_read_ += piece.size();
  return piece;
}

}  // namespace funicular::format
