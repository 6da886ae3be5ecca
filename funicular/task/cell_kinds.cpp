#include "funicular/task/cell_kinds.h"

#include <algorithm>
#include <array>
#include <string>

#include "funicular/base/number.h"
#include "funicular/format/column_list.h"

namespace funicular::task {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Returns whether the word is a month in English, or a part of a time: "T", "Z", "UTC", "PM".
bool is_word_of_dates(std::string word) {
  constexpr std::array kMonths{"jan", "feb", "mar", "apr", "may", "jun",
                               "jul", "aug", "sep", "oct", "nov", "dec"};
  constexpr std::array kTimes{"t", "z", "utc", "gmt", "am", "pm"};
  std::transform(word.begin(), word.end(), word.begin(), [](char c) { return static_cast<char>(c | 0x20); });
  return std::find(kTimes.begin(), kTimes.end(), word) != kTimes.end() ||
         std::any_of(kMonths.begin(), kMonths.end(),
                     [&](const char* name) { return word.starts_with(name); });
}

}  // namespace

uint64_t count_characters(std::string_view text) {
  return static_cast<uint64_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
}

bool is_number(std::string_view cell) {
  return read_number_with_comma(format::without_blanks(cell)).has_value();
}

bool is_date(std::string_view cell) {
  constexpr std::string_view kBetween = " -/.:,+";
  size_t numbers = 0, words = 0, longest = 0;
  bool dashes = false;
  for (size_t at = 0; at < cell.size();) {
    const size_t begin = at;
    while (at < cell.size() && is_digit(cell[at])) ++at;
    if (at > begin) {
      ++numbers;
      longest = std::max(longest, at - begin);
      continue;
    }
    while (at < cell.size() && is_letter(cell[at])) ++at;
    if (at > begin) {
      if (!is_word_of_dates(std::string(cell.substr(begin, at - begin)))) return false;
      ++words;
      continue;
    }
    if (kBetween.find(cell[at]) == kBetween.npos) return false;
    dashes = dashes || cell[at] == '-' || cell[at] == '/';
    ++at;
  }
  return numbers >= 3 || (numbers >= 1 && words >= 1) || (numbers == 2 && dashes && longest == 4);
}

bool is_code(std::string_view cell) {
  const bool digits = std::any_of(cell.begin(), cell.end(), is_digit);
  if (std::all_of(cell.begin(), cell.end(), is_digit)) return cell.size() >= 4;
  return digits && std::any_of(cell.begin(), cell.end(), is_letter) && cell.find(' ') == cell.npos;
}

}  // namespace funicular::task
