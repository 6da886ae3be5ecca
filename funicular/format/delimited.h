#pragma once
// Rows of text files: plain text, lines, TSV, CSV and JSON lines, as views into a mapped file. Any thread may read
// any chunk of it.
//
//   TextFile file("train.tsv", {.header = true, .columns = {"sentence1", "sentence2", "label"}});
//   for (Chunk chunk : file.chunks(8 << 20))
//     for (RowReader reader(file, chunk); const Row* row = reader.next();) use(row->columns[0], …);
//
// In all formats a byte-order mark is skipped. A line ends with \n, \r\n or \r\r\n (with \r alone if the whole file
// does so), and the last line may lack its end. A row that is not UTF-8, or holds a zero byte, is a bad row. Fields
// of CSV, and of TSV if Quotes says so, may be in quotes. A row whose quotes make no sense ends with the line in
// which its wrong quote was opened (quoted_rows.h).

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/mapped_text.h"
#include "funicular/format/row_parser.h"
#include "funicular/format/text_format.h"

namespace funicular::format {

/// A row; its views are valid until the next call of the reader that gave it.
struct Row {
  std::span<const std::string_view> columns;  ///< the requested columns, in the requested order
  uint64_t offset = 0;                        ///< of its first byte in the file
  bool new_document = true;  ///< text: the first line of a document; all other formats: always
  std::span<const std::string> kept =
      {};  ///< TextOptions::kept as JSON, each; a key that the row lacks is null
};

/// Bytes [begin, end) of a file: whole rows.
struct Chunk {
  uint64_t begin = 0, end = 0;
};

/// A mapped text file with its header read and its columns resolved. Threads may share it.
class TextFile {
 public:
  /// Throws InputError: cannot be read, UTF-16 or no text at all (base/mapped_text.h), no such column (the header's
  /// names are listed), two columns of one name.
  explicit TextFile(const fs::path& path, TextOptions options = {});

  const fs::path& path() const { return path_; }
  TextFormat format() const { return format_; }
  const TextOptions& options() const { return options_; }
  const std::vector<std::string>& header() const { return header_; }
  /// In UTF-8, whatever the file is in.
  std::string_view text() const { return file_.text(); }
  /// How the fields of tsv and csv are written.
  const Fields& fields() const { return fields_; }
  /// Whether a comma may be a number's decimal sign: semicolons stand between the fields.
  bool decimal_commas() const { return has_separators_ && fields_.separator == ';'; }

  /// All rows (without the header).
  Chunk whole() const { return {data_begin_, file_.text().size()}; }
  /// Cuts the rows into independent chunks of about `target_bytes` each, in file order. Looks at a few bytes around
  /// each cut, or, with quotes, passes over all rows once. The rows of all chunks in order are the rows
  /// of whole().
  std::vector<Chunk> chunks(uint64_t target_bytes) const;
  /// Number, from 1, of the line that holds byte `offset`; counts line ends up to there, so only for
  /// messages.
  uint64_t line_number(uint64_t offset) const;
  /// "path:line", for messages.
  std::string where(uint64_t offset) const;

 private:
  friend class RowReader;
  fs::path path_;
  TextOptions options_;
  TextFormat format_;
  MappedText file_;
  Fields fields_;
  bool has_separators_ = false;  ///< tsv, csv
  std::vector<std::string> header_;
  std::vector<size_t> indices_, kept_indices_;  ///< of the columns and of what is kept; not for jsonl
  std::vector<std::string> keys_, kept_keys_;   ///< jsonl
  uint64_t data_begin_ = 0;
  std::shared_ptr<BadRows> short_rows_;  ///< null without a header
};

/// Reads the rows of a chunk in order. One thread.
class RowReader {
 public:
  RowReader(const TextFile& file, Chunk chunk);
  explicit RowReader(const TextFile& file) : RowReader(file, file.whole()) {}
  /// The next row, or nullptr at the end. A bad row is refused, see below, and not given.
  const Row* next();
  uint64_t rows() const { return rows_; }
  uint64_t skipped() const { return skipped_; }
  /// Bytes of the chunk that are done, for progress.
  uint64_t bytes_done() const { return position_ - begin_; }
  /// Says that the row that was given last is a bad one: throws InputError "file:line: PROBLEM" unless such rows are
  /// to be skipped (TextOptions::bad_rows), and counts it.
  void refuse(std::string_view problem) { refuse_at(row_.offset, problem); }
  /// Throws InputError naming file:line of the row that was given last, for errors in its contents.
  template <class... A>
  [[noreturn]] void fail(fmt::format_string<A...> format, A&&... arguments) const {
    fail_with(fmt::vformat(fmt::string_view(format), fmt::make_format_args(arguments...)));
  }

 private:
  void refuse_at(uint64_t offset, std::string_view problem);
  [[noreturn]] void fail_with(const std::string& message) const { fail_at(row_.offset, message); }
  [[noreturn]] void fail_at(uint64_t offset, const std::string& message) const;
  const TextFile* file_;
  RowParser parser_;
  uint64_t begin_, position_, end_;
  bool new_document_;
  std::vector<std::string_view> columns_;
  Row row_;
  uint64_t rows_ = 0, skipped_ = 0;
};

}  // namespace funicular::format
