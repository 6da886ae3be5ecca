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

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/file.h"

namespace funicular::format {

enum class TextFormat {
  text,   ///< a line a row; blank lines separate documents
  lines,  ///< a line a row; each is its own document
  tsv,    ///< tab-separated, no quoting at all (as GLUE's files are)
  csv,    ///< RFC 4180: quoted fields may hold commas, doubled quotes and line ends
  jsonl,  ///< one JSON object a line
};

std::string_view text_format_name(TextFormat format);
/// Throws InputError that lists the formats and suggests the nearest.
TextFormat text_format_from_name(std::string_view name);
/// By the file's extension: .tsv; .csv; .jsonl and .ndjson; anything else is text. Throws InputError for
/// formats that are known and cannot be read (.gz, .zst, .parquet …), with the remedy.
TextFormat guess_text_format(const fs::path& path);

/// A column, by its index (from 0) or by its name in the header (jsonl: the key).
using Column = std::variant<size_t, std::string>;

/// A column as a person writes it: a number counts from 1 (as in `cut -f`), anything else is a name.
Column column_from_text(std::string_view text);

/// How many texts a row of so many text columns is: one, or a pair of two; more than two are joined into one.
constexpr int texts_of_columns(size_t columns) {
  return columns == 2 ? 2 : 1;
}

/// The columns as one text, a blank between them; empty ones are left out.
std::string join_columns(std::span<const std::string_view> columns);

enum class BadRows {
  fail,  ///< throw InputError naming file:line, expected and found
  skip,  ///< leave them out and count them
};

struct TextOptions {
  std::optional<TextFormat> format = {};  ///< none: guessed from the name
  bool header = false;                    ///< tsv and csv: the first row names the columns
  std::vector<Column> columns = {};  ///< which to give, in this order. Empty: all columns (jsonl: "text";
                                     ///< text and lines: the line)
  bool keep_blank_lines = false;     ///< lines, tsv, csv: an empty line is a row with one empty column
  bool lists = false;                ///< jsonl: the last column may be a list, see format/list.h
  BadRows bad_rows = BadRows::fail;
};

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
};

/// Cuts one row's text into columns. Shared by the readers of files and of streams.
class RowParser {
 public:
  RowParser(TextFormat format, std::vector<size_t> indices, std::vector<std::string> keys,
            size_t header_columns, bool lists = false);
  /// Fills `columns`. Returns "" or what is wrong with the row.
  std::string parse(std::string_view row, std::vector<std::string_view>& columns);

 private:
  void split_tabs(std::string_view row);
  std::string split_commas(std::string_view row);
  std::string parse_object(std::string_view row, std::vector<std::string_view>& columns);
  std::string select(std::vector<std::string_view>& columns) const;
  TextFormat format_;
  std::vector<size_t> indices_;
  std::vector<std::string> keys_;
  size_t header_columns_;
  bool lists_;
  std::vector<std::string_view> fields_;
  std::vector<std::string> storage_;  ///< unescaped fields
};

/// The rows of a chunk, one after the other. One thread.
class RowReader {
 public:
  RowReader(const TextFile& file, Chunk chunk);
  explicit RowReader(const TextFile& file) : RowReader(file, file.whole()) {}
  /// The next row, or nullptr at the end. Throws InputError "file:line: expected …, found …" for a bad row
  /// unless it is to be skipped.
  const Row* next();
  uint64_t rows() const { return rows_; }
  uint64_t skipped() const { return skipped_; }
  /// Bytes of the chunk that are done, for progress.
  uint64_t bytes_done() const { return position_ - begin_; }
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

/// Rows as they arrive on a descriptor (a pipe, a terminal), in memory of the longest row (64 MiB at most).
/// An interrupt (interrupt.h) ends the input. Does not close the descriptor.
class StreamRowReader {
 public:
  /// `name` stands for the file in messages, e.g. "standard input". The format must be given in the options
  /// or is `lines`.
  StreamRowReader(int descriptor, std::string name, TextOptions options = {});
  /// As RowReader::next; Row::offset counts bytes of the stream.
  const Row* next();
  /// From another thread: next() gives no more rows, even while it waits for bytes.
  void stop() { stopped_ = true; }
  /// Number, from 1, of the first line of the row that was given last.
  uint64_t line() const { return row_line_; }
  /// Known after the first call of next().
  const std::vector<std::string>& header() const { return header_; }
  uint64_t skipped() const { return skipped_; }

 private:
  void begin();
  bool next_raw(std::string_view& row);
  bool fill();
  [[noreturn]] void refuse_long_row() const;
  bool wait_for_bytes() const;
  int descriptor_;
  std::atomic<bool> stopped_{false};
  std::string name_;
  TextOptions options_;
  TextFormat format_;
  std::optional<RowParser> parser_;
  std::vector<std::string> header_;
  std::string buffer_;
  size_t begin_ = 0;   ///< of the unread part of the buffer
  uint64_t base_ = 0;  ///< stream offset of buffer_[0]
  bool end_ = false;
  bool in_quotes_ = false;  ///< csv: whether the row that is being read has an open quote so far
  bool new_document_ = true;
  std::vector<std::string_view> columns_;
  Row row_;
  uint64_t line_ = 1, row_line_ = 1, skipped_ = 0;
};

}  // namespace funicular::format
