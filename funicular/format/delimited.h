#pragma once
// Rows of text files: plain text, lines, TSV, CSV and JSON lines, as views into a mapped file, cut for
// threads.
//
//   TextFile file("train.tsv", {.header = true, .columns = {"sentence1", "sentence2", "label"}});
//   for (Chunk chunk : file.chunks(8 << 20))                     // each on any thread
//     for (RowReader reader(file, chunk); const Row* row = reader.next();) use(row->columns[0], …);
//
// In all formats a byte-order mark is skipped, a line ends with \n or \r\n, and the last line may lack its
// end. A row that is not UTF-8 is a bad row.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/format/row_parser.h"
#include "funicular/format/text_format.h"

namespace funicular::format {

/// A row; its views are valid until the next call of the reader that gave it.
struct Row {
  std::span<const std::string_view> columns;  ///< those asked for, in that order
  uint64_t offset = 0;                        ///< of its first byte in the file
  bool new_document = true;  ///< text: the first line of a document; the other formats: always
};

/// Bytes [begin, end) of a file: whole rows.
struct Chunk {
  uint64_t begin = 0, end = 0;
};

/// A mapped text file with its header read and its columns resolved. Threads may share it.
class TextFile {
 public:
  /// Throws InputError: cannot be read, not UTF-8 but UTF-16, no such column (the header's names are listed),
  /// two columns of one name.
  explicit TextFile(const fs::path& path, TextOptions options = {});

  const fs::path& path() const { return path_; }
  TextFormat format() const { return format_; }
  const TextOptions& options() const { return options_; }
  const std::vector<std::string>& header() const { return header_; }
  std::string_view text() const { return file_.text(); }
  /// Of csv: what stands between its fields, a comma or a semicolon.
  char separator() const { return separator_; }

  /// All rows (without the header).
  Chunk whole() const { return {data_begin_, file_.text().size()}; }
  /// The rows cut into independent chunks of about `target_bytes` each, in file order, by looking at a few
  /// bytes around each cut (csv: one pass that counts quotes). The rows of all chunks in order are the rows
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
  MappedFile file_;
  std::vector<std::string> header_;
  std::vector<size_t> indices_;    ///< of options_.columns; not for jsonl
  std::vector<std::string> keys_;  ///< jsonl
  uint64_t data_begin_ = 0;
  char separator_ = ',';
};

/// The rows of a chunk, one after the other. One thread.
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
  /// Says that the row that was given last is a bad one: throws InputError "file:line: PROBLEM" unless such rows are to be
  /// skipped (TextOptions::bad_rows), and counts it.
  void refuse(std::string_view problem);
  /// Throws InputError naming file:line of the row that was given last, for errors in its contents.
  template <class... A>
  [[noreturn]] void fail(fmt::format_string<A...> format, A&&... arguments) const {
    fail_with(fmt::vformat(fmt::string_view(format), fmt::make_format_args(arguments...)));
  }

 private:
  [[noreturn]] void fail_with(const std::string& message) const;
  const TextFile* file_;
  RowParser parser_;
  uint64_t begin_, position_, end_;
  bool new_document_;
  std::vector<std::string_view> columns_;
  Row row_;
  uint64_t rows_ = 0, skipped_ = 0;
};

}  // namespace funicular::format
