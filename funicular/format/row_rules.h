#pragma once
// What the readers of files and of streams have in common: where rows end, what blank lines mean, which columns are
// asked for. `name` is the file's, for messages; all throw InputError.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/format/text_format.h"

namespace funicular::format {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// Where a row ends: just after its line end, or at the limit. `complete` tells whether the line end was there.
struct RowEnd {
  size_t end;
  bool complete;
};

/// Of the line that begins at `begin`.
RowEnd line_end(std::string_view text, size_t begin, size_t limit);
/// Of the row that begins there. `in_quotes`, of csv: whether `begin` lies within quotes; becomes whether the end does.
RowEnd row_end(TextFormat format, std::string_view text, size_t begin, size_t limit, bool& in_quotes);
RowEnd row_end(TextFormat format, std::string_view text, size_t begin, size_t limit);

std::string_view without_line_end(std::string_view row);
bool is_blank(std::string_view line);

/// What a row that may be blank is in a format.
enum class Blank { row, skip, new_document };
Blank blank_line(const TextOptions& options, TextFormat format, std::string_view row);

/// Whether rows have columns that are separated: tsv and csv.
bool has_columns(TextFormat format);

/// What stands between the fields of csv whose first rows, from the first, are these: a semicolon where the first row
/// has some and no comma (outside quotes), and the next two have as many; else a comma. A header alone may stand
/// without rows. None: more of the rows is needed to tell; not where they are `whole`. Excel writes semicolons where
/// a comma is the decimal sign.
std::optional<char> csv_separator(std::string_view rows, bool header, bool whole);
/// Says, once a process and file, that a table is read with semicolons.
void note_semicolons(const std::string& name);

void refuse_utf16(std::string_view text, const std::string& name);
void check_options(const TextOptions& options, TextFormat format, const std::string& name);

/// The columns' names of the first row. Refuses several columns of one name. `separator`: of csv.
std::vector<std::string> parse_header(TextFormat format, std::string_view row, const std::string& name,
                                      char separator = ',');
/// The columns that are asked for, by index; of formats without columns none.
std::vector<size_t> resolve_all(const TextOptions& options, TextFormat format,
                                const std::vector<std::string>& header, const std::string& name);
/// The keys that are asked for; of other formats than jsonl none.
std::vector<std::string> resolve_keys(const TextOptions& options, TextFormat format);

}  // namespace funicular::format
