#include "funicular/data/row_source.h"

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/data/mapped_pages.h"
#include "funicular/data/token_store.h"

#include <algorithm>

namespace funicular::data {

namespace {

void give_back_chunk(std::string_view text, format::Chunk chunk) {
  const size_t begin = std::min<size_t>(chunk.begin, text.size());  // the file may have become shorter
  give_back(std::as_bytes(std::span(text.substr(begin, chunk.end - chunk.begin))));
}

// Each search for a cut touches a page, and the kernel maps the cached neighbours too, about 200 kB per cut. Large
// files get larger pieces, so that this memory does not grow with their size.
uint64_t piece_size(uint64_t file_bytes, uint64_t wanted) {
  constexpr uint64_t kCuts = 400, kLargest = 8 << 20;
  return std::max(wanted, std::min(file_bytes / kCuts, kLargest));
}

void require_columns(size_t columns) {
  if (columns < 1 || columns > StoreMeta::kMostColumns)
    throw InputError("tokenize", "expected 1 to {} text columns, found {}", StoreMeta::kMostColumns, columns);
}

}  // namespace

TextFileSource::TextFileSource(const std::vector<fs::path>& files, TextFileSourceOptions options)
    : options_(std::move(options)) {
  if (files.empty()) throw InputError("tokenize", "no input files; expected at least one");
  const size_t columns = std::max<size_t>(1, options_.text_columns.size());
  require_columns(columns);
  columns_ = options_.separate_columns ? static_cast<int>(columns) : format::texts_of_columns(columns);
  for (const auto& file : files) add(file);
}

format::TextOptions TextFileSource::file_options() const {
  format::TextOptions options;
  options.format = options_.format;
  options.header = options_.header;
  options.columns = options_.text_columns;
  options.keep_blank_lines = options_.keep_blank_lines;
  options.bad_rows = options_.bad_rows;
  options.lists = options_.lists;
  options.kept = options_.kept;
  options.style = options_.style;
  return options;
}

namespace {

// The formats text and lines have one column, whose name does not matter; all other formats need column names.
format::TextOptions resolve_columns(const fs::path& path, format::TextOptions options,
                                    const std::optional<format::Column>& label) {
  const auto format = options.format ? *options.format : format::guess_text_format(path);
  const bool plain = format == format::TextFormat::text || format == format::TextFormat::lines;
  if (plain && (label || options.columns.size() > 1)) {
    // A name without a known ending may be a mistake.
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status) || fs::is_directory(status))
      throw InputError("data", "{} {}; expected a file of rows", path.string(),
                       fs::is_directory(status) ? "is a folder" : "does not exist");
    throw InputError("tokenize",
                     "{}: a file of format {} has one column and no labels; expected tsv, csv or jsonl for "
                     "{}. The format follows from the file's name, unless --format gives it",
                     path.string(), format::text_format_name(format),
                     label ? "a label column" : "several columns");
  }
  if (plain) {
    options.columns.clear();
    options.header = false;
    return options;
  }
  if (options.columns.empty())
    options.columns = {format == format::TextFormat::jsonl ? format::Column("text")
                                                           : format::Column(size_t{0})};
  if (format == format::TextFormat::jsonl) options.header = false;
  if (label) options.columns.push_back(*label);
  return options;
}

}  // namespace

void TextFileSource::add(const fs::path& path) {
  const auto file = std::make_shared<const format::TextFile>(
      path, resolve_columns(path, file_options(), options_.label_column));
  const auto chunks = file->chunks(piece_size(file->text().size(), options_.piece_bytes));
  give_back_chunk(file->text(), file->whole());
  for (const auto& chunk : chunks) {
    // Thousands of small files must not hold thousands of mappings.
    pieces_.push_back({path, chunks.size() > 1 ? file : nullptr, chunk});
    total_bytes_ += chunk.end - chunk.begin;
  }
}

uint64_t TextFileSource::piece_bytes(size_t piece) const {
  return pieces_.at(piece).chunk.end - pieces_.at(piece).chunk.begin;
}

std::shared_ptr<const format::TextFile> TextFileSource::open(const Piece& piece) const {
  if (piece.file) return piece.file;
  return std::make_shared<const format::TextFile>(
      piece.path, resolve_columns(piece.path, file_options(), options_.label_column));
}

std::vector<std::string> TextFileSource::column_names() const {
  if (pieces_.empty()) return {};
  const auto file = open(pieces_.front());
  std::vector<std::string> names = file->header();
  if (file->format() != format::TextFormat::jsonl) return names;
  const std::string_view text = file->text().substr(file->whole().begin);
  const auto first = parse_json_or_null<OrderedJson>(text.substr(0, text.find('\n')));
  if (first.is_object())
    for (const auto& [key, value] : first.items()) names.push_back(key);
  return names;
}

uint64_t TextFileSource::read(size_t piece, const RowSink& sink) const {
  const Piece& part = pieces_.at(piece);
  const auto file = open(part);
  format::RowReader reader(*file, part.file ? part.chunk : file->whole());
  const size_t columns = std::max<size_t>(1, options_.text_columns.size());
  std::string joined;
  std::string_view whole;
  while (const format::Row* row = reader.next()) {
    SourceRow given{row->columns, {}, row->new_document, {}, row->offset, file->decimal_commas(), row->kept};
    if (row->columns.size() != columns + has_labels())
      reader.fail("expected {} columns, found {}", columns + has_labels(), row->columns.size());
    if (has_labels()) {
      given.columns = row->columns.first(columns);
      given.label = row->columns.back();
    }
    if (columns > 2 && !options_.separate_columns) {
      whole = joined = format::join_columns(given.columns);
      given.columns = {&whole, 1};
    }
    try {
      sink(given);
    } catch (const BadRow& error) {
      reader.refuse(error.what());
    }
  }
  give_back_chunk(file->text(), part.chunk);
  return reader.skipped();
}

MemorySource::MemorySource(std::vector<Row> rows, int columns, bool has_labels, size_t rows_per_piece)
    : rows_(std::move(rows)),
      columns_(columns),
      has_labels_(has_labels),
      rows_per_piece_(std::max<size_t>(1, rows_per_piece)) {
  require_columns(static_cast<size_t>(columns));
}

std::span<const MemorySource::Row> MemorySource::piece_rows(size_t piece) const {
  const size_t begin = piece * rows_per_piece_;
  return std::span(rows_).subspan(begin, std::min(rows_per_piece_, rows_.size() - begin));
}

uint64_t MemorySource::piece_bytes(size_t piece) const {
  uint64_t bytes = 0;
  for (const Row& row : piece_rows(piece))
    for (const auto& column : row.columns) bytes += column.size();
  return bytes;
}

uint64_t MemorySource::read(size_t piece, const RowSink& sink) const {
  const auto rows = piece_rows(piece);
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<std::string_view> columns(rows[i].columns.begin(), rows[i].columns.end());
    const size_t number = piece * rows_per_piece_ + i;
    if (columns.size() != static_cast<size_t>(columns_))
      throw InputError("tokenize", "row {}: expected {} columns, found {}", number, columns_, columns.size());
    try {
      sink({columns, rows[i].label, rows[i].new_document});
    } catch (const BadRow& error) {
      throw InputError("tokenize", "row {}: {}", number, std::string_view(error.what()));
    }
  }
  return 0;
}

}  // namespace funicular::data
