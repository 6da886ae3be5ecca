#pragma once
// The text of a table as it arrives from a pipe, a terminal or a file: unpacked, in UTF-8, with one kind of line end.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "funicular/base/input_stream.h"
#include "funicular/base/mapped_text.h"
#include "funicular/base/text_encoding.h"

namespace funicular::format {

/// Holds the bytes that were read and not yet taken. A regular file that is not compressed is mapped, and read as
/// MappedText reads it. Does not close the descriptor.
class ArrivingText {
 public:
  /// How many bytes one call of read() gives of a file.
  static constexpr size_t kPiece = 1 << 16;

  /// `name` stands for the file in messages. `encoding`: a name that iconv knows; "": UTF-8.
  ArrivingText(int descriptor, std::string name, std::string encoding);
  /// Reads what shows the kind of the text. Throws InputError for another kind (foreign_file.h) and for UTF-16 and
  /// UTF-32 without an encoding; skips a byte-order mark. Call it once, before all others but stop().
  void begin();
  /// Reads the next piece behind unread(); the bytes before it are lost, views of them become invalid. Returns
  /// whether there was more; then ended() tells that there was none.
  bool read();
  /// Counts the first `bytes` of unread() as taken.
  void take(size_t bytes) { begin_ += bytes; }
  std::string_view unread() const { return std::string_view(buffer_).substr(begin_); }
  /// The bytes taken since the last read(), and unread() behind them.
  std::string_view held() const { return buffer_; }
  /// The offset of unread() in the whole text: bytes of UTF-8, a byte-order mark included.
  uint64_t offset() const { return base_ + begin_; }
  bool ended() const { return ended_; }
  /// The whole text, where a file is mapped.
  std::optional<std::string_view> whole() const;
  /// From another thread: the text ends here, even while read() waits for bytes.
  void stop() { stream_.stop(); }

 private:
  void map_regular_file();
  bool may_begin_otherwise() const;
  void settle_line_ends();
  void end_lines_alike(size_t from);
  std::string_view next_piece();
  int descriptor_;
  std::string name_, encoding_;
  InputStream stream_;    ///< unless the file is mapped
  bool is_file_ = false;  ///< whether it is a regular file, read from its start
  std::optional<MappedText> mapped_;
  size_t mapped_read_ = 0;  ///< bytes of it
  bool lone_returns_ = false;
  std::optional<TextConverter> converter_;
  std::string buffer_;
  size_t begin_ = 0;   ///< of the unread part of the buffer
  uint64_t base_ = 0;  ///< offset of buffer_[0] in the text
  bool ended_ = false;
};

}  // namespace funicular::format
