#include "funicular/format/column_list.h"

#include <algorithm>

#include "funicular/base/error.h"

namespace funicular::format {

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  return begin == text.npos ? std::string_view()
                            : text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::vector<std::string_view> split_list(std::string_view text, std::string_view separator) {
  if (separator.empty())
    throw InputError("text", "expected a separator of at least one character, found none");
  const bool is_list = text.starts_with(kListMark);
  if (is_list) {
    text.remove_prefix(1);
    separator = std::string_view(&kListMark, 1);
  }
  std::vector<std::string_view> elements;
  while (true) {
    const size_t end = text.find(separator);
    const std::string_view element = text.substr(0, end);
    elements.push_back(is_list ? element : without_blanks(element));
    if (end == text.npos) break;
    text.remove_prefix(end + separator.size());
  }
  std::erase_if(elements, [](std::string_view element) { return element.empty(); });
  return elements;
}

}  // namespace funicular::format
