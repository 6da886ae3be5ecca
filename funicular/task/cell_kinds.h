#pragma once
// Recognises kinds of table cells, for guesses about columns (column_facts.h).

#include <cstdint>
#include <string_view>

namespace funicular::task {

/// Returns how many characters, and not bytes, the text has.
uint64_t count_characters(std::string_view text);
/// Returns whether the cell is a number, perhaps with a decimal comma.
bool is_number(std::string_view cell);
/// Returns whether the cell is a day, a month or a time: "2024-01-31", "31/01/2024", "Jan 31, 2024", "2024-01".
bool is_date(std::string_view cell);
/// Returns whether the cell is one word of letters and digits ("K17"), or a whole number of four or more digits.
bool is_code(std::string_view cell);

}  // namespace funicular::task
