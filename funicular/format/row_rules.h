#pragma once
// Rules shared by the readers of files and of streams: ends of rows, blank lines, chosen columns. `name` is
// the file's, for messages; all throw InputError.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/mapped_text.h"
#include "funicular/format/quoted_rows.h"
#include "funicular/format/text_format.h"

namespace funicular::format {

/// The end of a row: just after its line end, or at the limit. `complete`: whether the line end was there.
struct RowEnd {
  size_t end;
  bool complete;
};

/// Returns the end of the line that begins at `begin`.
RowEnd line_end(std::string_view text, size_t begin, size_t limit);
/// Returns the end of the row that begins at `begin`.
size_t row_end(const Fields& fields, std::string_view text, size_t begin, size_t limit);

/// Returns the row without the \n at its end and the \r before it, of which \r\r\n has two.
std::string_view without_line_end(std::string_view row);
/// Whether the line holds only Unicode's white space (as Python's str.isspace), no-break spaces included.
bool is_blank(std::string_view line);

/// The meaning of a row in a format that may treat blank rows differently.
enum class Blank { row, skip, new_document };
Blank blank_line(const TextOptions& options, TextFormat format, std::string_view row);

/// Whether rows have columns that are separated: tsv and csv.
bool has_columns(TextFormat format);

/// How the fields of tsv and csv are written, before their rows are looked at. Other formats have no fields in
/// quotes.
Fields fields_of(TextFormat format, const FileStyle& style);

/// Returns the separator of a csv table that begins with `rows`. It is a semicolon if the first row has semicolons
/// and no comma (outside quotes), and each of the next two rows has as many. Otherwise it is a comma. Excel writes
/// semicolons if a comma is the decimal sign. A header may have no rows. Returns none if more of the rows is needed
/// to tell; never if they are `whole`.
std::optional<char> csv_separator(std::string_view rows, bool quoted, bool header, bool whole);
/// Logs, once per process and file, that a table is read with semicolons.
void note_semicolons(const std::string& name);
/// Logs, once per process and file, how the quotes of a table are read, if its rows decide that.
void note_quotes(const std::string& name, const QuoteChoice& choice);

/// Collects the rows that are read although they have fewer columns than the header (RowParser::shortage). When the
/// last reader is done with the file `name`, a warning lists them, once per process and file.
std::shared_ptr<BadRows> make_short_rows(const std::string& name, size_t header_columns);

void check_options(const TextOptions& options, TextFormat format, const std::string& name);
/// Returns the options with other columns.
TextOptions with_columns(TextOptions options, const std::vector<Column>& columns);
/// Returns the keys of columns of jsonl; none for other formats.
std::vector<std::string> keys_of(const std::vector<Column>& columns, TextFormat format);

/// Returns the column names in the first row. Refuses several columns of one name. `text` begins with that row; it
/// tells the encoding if it is not UTF-8.
std::vector<std::string> parse_header(TextFormat format, const Fields& fields, std::string_view row,
                                      const std::string& name, const FileStyle& style, std::string_view text);
/// Returns the indices of the requested columns; none if the format has no columns.
std::vector<size_t> resolve_all(const TextOptions& options, TextFormat format,
                                const std::vector<std::string>& header, const std::string& name);
/// Returns the indices of `kept` columns, which may repeat each other and the columns of the options. Returns none if the
/// format has no columns.
std::vector<size_t> resolve_kept(const std::vector<Column>& kept, const TextOptions& options,
                                 TextFormat format, const std::vector<std::string>& header,
                                 const std::string& name);
/// Returns the requested keys, "text" by default; none for other formats than jsonl.
std::vector<std::string> resolve_keys(const TextOptions& options, TextFormat format);

}  // namespace funicular::format
