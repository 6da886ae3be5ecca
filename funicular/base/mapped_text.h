#pragma once
// Texts as they are read: UTF-8, lines that end in \n, no byte-order mark, whatever the file has.

#include <string>
#include <string_view>

#include "funicular/base/file.h"

namespace funicular {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Whether lines end in CR alone, as on old Macs: no LF is in the text, and a CR is. A CR at the end alone ends a text of one line.
bool has_lone_returns(std::string_view text);
/// Says, once per name, that lines end in CR alone.
void note_lone_returns(const std::string& name);

/// A read-only mapping of a text file. If the file is compressed (decompressor.h) or in another encoding, a
/// temporary file without a name holds the text and is mapped instead. Files whose lines end in CR alone are also
/// replaced by such a file, and files of Parquet and Arrow by JSON lines (columnar_file.h).
class MappedText {
 public:
  MappedText() = default;
  /// `encoding`: a name that iconv knows; "": UTF-8. Throws InputError if the file cannot be opened, is no regular file, or has
  /// another kind (foreign_file.h); also for UTF-16 if no encoding is given. Says once that lines end in CR alone.
  /// `name`: what messages call it; "": the path.
  explicit MappedText(const fs::path& path, const std::string& encoding = "", std::string name = "");

  /// With its byte-order mark where it has one. Offsets of rows count in this text.
  std::string_view text() const { return file_.text(); }
  /// Without the byte-order mark.
  std::string_view content() const;

 private:
  MappedFile file_;
};

/// The whole of a file that holds a list, settings or a vocabulary, without a byte-order mark. Throws InputError as read_file does,
/// and if the file has another kind than `expected` (foreign_file.h) or is in UTF-16.
std::string read_text(const fs::path& path, std::string_view expected = "text");
/// Like read_text, but also reads a pipe or a device, as the shell gives for <(…).
std::string read_text_or_pipe(const fs::path& path, std::string_view expected = "text");

/// Throws InputError if a text begins as UTF-16 or UTF-32 does. `has_option`: whether the text has the option
/// --encoding; the message names the option then, and iconv otherwise.
void refuse_wide_text(std::string_view begin, const std::string& name, bool has_option = true);

}  // namespace funicular
