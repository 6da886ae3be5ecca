#pragma once
// Several values in one column of a row: "joy, love", or a list of JSON.

#include <string>
#include <string_view>
#include <vector>

namespace funicular::format {

/// A list of JSON comes as the text of a column with this before each of its elements (ASCII's record separator,
/// which no text holds); alone, the list is empty.
inline constexpr char kListMark = '\x1e';

/// Without the blanks around it. A view into `text`.
std::string_view without_blanks(std::string_view text);

/// The elements of a column's text: those of a list, or what stands between the separators without blanks
/// around it; empty ones are left out. Views into `text`. Throws InputError for an empty separator.
std::vector<std::string_view> split_list(std::string_view text, std::string_view separator);

}  // namespace funicular::format
