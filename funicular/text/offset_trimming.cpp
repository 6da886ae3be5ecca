#include "funicular/text/offset_trimming.h"

#include <algorithm>

#include "funicular/text/byte_level.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

bool is_blank(uint32_t code) {
  return code == byte_character(' ') || category_of(code) == unicode::white_space;
}

int32_t leading_blanks(std::string_view token) {
  int32_t count = 0;
  for (const char *at = token.data(), *end = at + token.size(); at < end; ++count)
    if (!is_blank(next_code_point(at, end))) break;
  return count;
}

int32_t trailing_blanks(std::string_view token) {
  int32_t count = 0;
  for (int size = 0; !token.empty() && is_blank(last_code_point(token, size)); ++count)
    token.remove_suffix(size);
  return count;
}

}  // namespace

CharacterRange trimmed(CharacterRange range, std::string_view spelling, bool first, bool keeps_prefix) {
  int32_t leading = leading_blanks(spelling);
  const int32_t trailing = trailing_blanks(spelling);
  if (leading == 1 && keeps_prefix && (first || range.begin == 0)) leading = 0;
  range.begin = std::min(range.begin + leading, range.end);
  if (trailing > 0 && range.end >= trailing) range.end = std::max(range.end - trailing, range.begin);
  return range;
}

}  // namespace funicular::text
