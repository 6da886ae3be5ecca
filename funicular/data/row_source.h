#pragma once
// Sources of the rows of a token store: text files, or memory (tests, augmented data).

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/format/delimited.h"

namespace funicular::data {

/// A row of text; its views are valid during the call that it is passed to.
struct SourceRow {
  std::span<const std::string_view> columns;  ///< columns to tokenise
  std::string_view label;                     ///< as written; "" if the source has no labels
  bool new_document = true;
  /// Positions of tokens of columns[0] that continue a word, [CLS] being 0; see word_references.h.
  std::span<const int32_t> continued = {};
  uint64_t offset = 0;          ///< of its first byte in its file; 0 of rows in memory
  bool decimal_commas = false;  ///< numbers may have a decimal comma, as semicolons separate the columns
  std::span<const std::string> kept = {};  ///< TextFileSourceOptions::kept as JSON, each
  std::span<const double> shares = {};     ///< shares of RowSource::label_names; NaN: unknown
  double weight = 1;                       ///< above 0
};

/// Thrown by a RowSink for a malformed row; the source adds the row's place.
struct BadRow : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using RowSink = std::function<void(const SourceRow&)>;

/// Rows in a fixed order, split into pieces that threads can read concurrently.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int columns() const = 0;  ///< to tokenise
  virtual bool has_labels() const = 0;
  /// The names of the labels of a row's shares, or of its numbers (LabelKind::numbers); empty: it has none.
  virtual std::vector<std::string> share_names() const { return {}; }
  virtual bool has_weights() const { return false; }
  virtual size_t pieces() const = 0;
  /// Size of a piece's text, for progress.
  virtual uint64_t piece_bytes(size_t piece) const = 0;
  /// Passes each row of a piece to the sink, in order, and returns the number of skipped bad rows. May run on any
  /// thread. Throws InputError naming the place of a bad row, also for BadRow of the sink, unless bad rows are
  /// skipped.
  virtual uint64_t read(size_t piece, const RowSink& sink) const = 0;
};

struct TextFileSourceOptions {
  std::optional<format::TextFormat> format = {};  ///< none: guessed from each file's name
  bool header = false;                            ///< tsv, csv
  std::vector<format::Column> text_columns =
      {};  ///< 1, 2, or more, which are joined into one; empty: the line, the first column, or jsonl's "text"
  bool separate_columns = false;  ///< keeps more than two columns separate
  std::optional<format::Column> label_column = {};
  std::vector<format::Column> kept = {};      ///< columns that SourceRow::kept gives
  bool keep_blank_lines = false;              ///< lines: an empty line is an empty row
  format::Lists lists = format::Lists::none;  ///< jsonl: whether the label may be a list, or all columns
  format::FileStyle style = {};
  std::shared_ptr<format::BadRows> bad_rows = {};  ///< see format::TextOptions
  uint64_t piece_bytes =
      512 << 10;  ///< approximate size of the text that a thread reads at once; more in large files
};

/// The rows of several files in order. Memory does not grow with their size, as pages that have been read are
/// released.
class TextFileSource : public RowSource {
 public:
  /// Throws InputError: no files, a file that cannot be read, a column that is missing.
  TextFileSource(const std::vector<fs::path>& files, TextFileSourceOptions options);
  int columns() const override { return columns_; }
  bool has_labels() const override { return options_.label_column.has_value(); }
  size_t pieces() const override { return pieces_.size(); }
  uint64_t piece_bytes(size_t piece) const override;
  uint64_t read(size_t piece, const RowSink& sink) const override;
  uint64_t total_bytes() const { return total_bytes_; }
  /// The names of all columns of the first file: its header, or the keys of its first JSON line. Empty if columns
  /// have no names.
  std::vector<std::string> column_names() const;

 private:
  struct Piece {
    fs::path path;
    std::shared_ptr<const format::TextFile>
        file;  ///< null if the file is one piece, which is opened again for reading
    format::Chunk chunk;
  };
  void add(const fs::path& path);
  std::shared_ptr<const format::TextFile> open(const Piece& piece) const;
  format::TextOptions file_options() const;

  TextFileSourceOptions options_;
  int columns_ = 1;
  std::vector<Piece> pieces_;
  uint64_t total_bytes_ = 0;
};

/// Rows in memory.
class MemorySource : public RowSource {
 public:
  struct Row {
    std::vector<std::string> columns;
    std::string label = "";
    bool new_document = true;
  };
  /// Every row has `columns` columns.
  MemorySource(std::vector<Row> rows, int columns, bool has_labels, size_t rows_per_piece = 256);
  int columns() const override { return columns_; }
  bool has_labels() const override { return has_labels_; }
  size_t pieces() const override { return (rows_.size() + rows_per_piece_ - 1) / rows_per_piece_; }
  uint64_t piece_bytes(size_t piece) const override;
  uint64_t read(size_t piece, const RowSink& sink) const override;

 private:
  std::span<const Row> piece_rows(size_t piece) const;
  std::vector<Row> rows_;
  int columns_;
  bool has_labels_;
  size_t rows_per_piece_;
};

}  // namespace funicular::data
