#pragma once
// Formats of text files whose rows are read, and what is asked of them.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/bad_rows.h"

namespace funicular::format {

enum class TextFormat {
  text,   ///< a line a row; blank lines separate documents
  lines,  ///< a line a row; each is its own document
  tsv,    ///< tab-separated; fields may be in quotes, see Quotes
  csv,  ///< RFC 4180: quoted fields may hold commas, doubled quotes and line ends; or with semicolons, where the
        ///< first rows show them (csv_separator of row_rules.h)
  jsonl,  ///< one JSON object a line
};

std::string_view text_format_name(TextFormat format);
/// Throws InputError that lists the formats and suggests the nearest.
TextFormat text_format_from_name(std::string_view name);
/// The ending of the file's name with its dot, ASCII capitals as small letters: ".jsonl" of ROWS.JSONL.
std::string ending_of(const fs::path& path);
/// The name without the ending of a compressed file that is unpacked while it is read: rows.jsonl of rows.jsonl.gz. The
/// rows of Parquet and Arrow are read as JSON lines: rows.jsonl of rows.parquet.
fs::path unpacked_name(const fs::path& path);
/// As ending_of, of the text in the file: .jsonl of rows.jsonl.gz and of rows.jsonl.
std::string text_ending_of(const fs::path& path);
/// By the ending of the text: .tsv; .csv; .jsonl and .ndjson; anything else is text. Throws InputError for
/// formats that are known and cannot be read (.xz, .pdf …), with the remedy.
TextFormat guess_text_format(const fs::path& path);

/// A column, by its index (from 0) or by its name in the header (jsonl: the key).
using Column = std::variant<size_t, std::string>;

/// A column as a person writes it: a number counts from 1 (as in `cut -f`), anything else is a name.
Column column_from_text(std::string_view text);

/// Returns the number of texts that the text columns of a row make. Two columns are a pair; any other number of
/// columns is joined into one text.
constexpr int texts_of_columns(size_t columns) {
  return columns == 2 ? 2 : 1;
}

/// Joins the columns with blanks into one text; empty columns are left out.
std::string join_columns(std::span<const std::string_view> columns);

/// Whether a quote at the start of a field of TSV or CSV opens a quoted field.
enum class Quotes {
  automatic,  ///< csv: yes; tsv: as its rows show (choose_quotes of quoted_rows.h), which is said
  csv,        ///< yes: the field may hold separators, line ends and doubled quotes
  none,       ///< no: quotes are characters as others, as in GLUE's files
};
/// "auto", "csv" or "none". Throws InputError for anything else.
Quotes quotes_from_name(std::string_view name);
std::string_view quotes_name(Quotes quotes);

/// How a text file is written, whatever its format.
struct FileStyle {
  std::string encoding = {};  ///< as iconv calls it; "": UTF-8
  Quotes quotes = Quotes::automatic;
};

/// Which columns of a JSON row may be lists: none, the last requested column, or all.
enum class Lists { none, last, all };

struct TextOptions {
  std::optional<TextFormat> format = {};  ///< none: guessed from the name
  bool header = false;                    ///< tsv and csv: the first row names the columns
  std::vector<Column> columns = {};  ///< which to give, in this order. Empty: all columns (jsonl: "text";
                                     ///< text and lines: the line)
  std::vector<Column> kept = {};  ///< tsv, csv, jsonl: columns that a row gives besides, as JSON (Row::kept)
  bool keep_blank_lines = false;  ///< lines, tsv, csv: an empty line is a row with one empty column
  Lists lists = Lists::none;      ///< jsonl: which columns may be lists, see format/column_list.h
  FileStyle style = {};
  /// Decides what happens to bad rows. If null, each bad row throws InputError naming file:line, expected and
  /// found.
  std::shared_ptr<BadRows> bad_rows = {};
};

}  // namespace funicular::format
