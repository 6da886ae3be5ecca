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

/// Where a row ends: just after its line end, or at the limit. `complete` tells whether the line end was there.
struct RowEnd {
  size_t end;
  bool complete;
};

/// Of the line that begins at `begin`.
RowEnd line_end(std::string_view text, size_t begin, size_t limit);
/// The end of the row that begins at `begin`.
size_t row_end(const Fields& fields, std::string_view text, size_t begin, size_t limit);

/// Without the \n at its end and the \r before it, of which \r\r\n has two.
std::string_view without_line_end(std::string_view row);
/// Whether there is nothing but white space, of Unicode (as Python's str.isspace), and of that no-break spaces too.
bool is_blank(std::string_view line);

/// What a row that may be blank is in a format.
enum class Blank { row, skip, new_document };
Blank blank_line(const TextOptions& options, TextFormat format, std::string_view row);

/// Whether rows have columns that are separated: tsv and csv.
bool has_columns(TextFormat format);

/// How the fields of tsv and csv are written before their rows are looked at; of other formats no field is in quotes.
Fields fields_of(TextFormat format, const FileStyle& style);

/// What stands between the fields of csv whose first rows, from the first, are these: a semicolon where the first row
/// has some and no comma (outside quotes), and the next two have as many; else a comma. A header alone may stand
/// without rows. None: more of the rows is needed to tell; not where they are `whole`. Excel writes semicolons where
/// a comma is the decimal sign.
std::optional<char> csv_separator(std::string_view rows, bool quoted, bool header, bool whole);
/// Says, once a process and file, that a table is read with semicolons.
void note_semicolons(const std::string& name);
/// Says, once a process and file, how quotes of a table are read whose rows tell it.
void note_quotes(const std::string& name, const QuoteChoice& choice);

/// Collects the rows that are read although they have fewer columns than the header (RowParser::shortage). When the last
/// reader is done with the file `name`, a warning tells them, once per process and file.
std::shared_ptr<BadRows> make_short_rows(const std::string& name, size_t header_columns);

void check_options(const TextOptions& options, TextFormat format, const std::string& name);
/// The options with other columns.
TextOptions with_columns(TextOptions options, const std::vector<Column>& columns);
/// The keys of columns of jsonl; of other formats none.
std::vector<std::string> keys_of(const std::vector<Column>& columns, TextFormat format);

/// The columns' names of the first row. Refuses several columns of one name. `text`: begins with that row, and tells
/// in which encoding it is where it is not UTF-8.
std::vector<std::string> parse_header(TextFormat format, const Fields& fields, std::string_view row,
                                      const std::string& name, const FileStyle& style, std::string_view text);
/// The columns that are asked for, by index; of formats without columns none.
std::vector<size_t> resolve_all(const TextOptions& options, TextFormat format,
                                const std::vector<std::string>& header, const std::string& name);
/// Returns the indices of `kept` columns, which may repeat each other and the columns of the options. Returns none if the
/// format has no columns.
std::vector<size_t> resolve_kept(const std::vector<Column>& kept, const TextOptions& options,
                                 TextFormat format, const std::vector<std::string>& header,
                                 const std::string& name);
/// The keys that are asked for; of other formats than jsonl none.
std::vector<std::string> resolve_keys(const TextOptions& options, TextFormat format);

}  // namespace funicular::format
