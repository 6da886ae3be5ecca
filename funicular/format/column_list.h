#pragma once
// Several values in one column of a row: "joy, love", or a list of JSON.

#include <string>
#include <string_view>
#include <vector>

namespace funicular::format {

/// A JSON list becomes the text of a column with this mark before each element (ASCII's record separator, which no
/// text holds). The mark alone is an empty list.
inline constexpr char kListMark = '\x1e';

/// Returns `text` without the blanks around it, as a view into `text`.
std::string_view without_blanks(std::string_view text);

/// Returns the elements of a column's text as views into `text`. A list gives its elements; other text is cut at
/// the separators, without the blanks around each part. Empty elements are left out. Throws InputError for an empty
/// separator.
std::vector<std::string_view> split_list(std::string_view text, std::string_view separator);

}  // namespace funicular::format
