#include "funicular/text/scripts.h"

#include <algorithm>
#include <iterator>

#include "funicular/text/normalizer.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::text {

namespace {

struct Range {
  uint32_t first, last;
};

constexpr Range kRanges[] = {
    {0x0E00, 0x0EFF},  // Thai, Lao
    {0x0F00, 0x0FFF},  // Tibetan
    {0x1000, 0x109F},  // Burmese
    {0x1780, 0x17FF},  // Khmer
    {0x3005, 0x3007},  // marks of repetition, zero
    {0x3041, 0x30FF},  // Hiragana, Katakana
    {0x3105, 0x312F},  // Bopomofo
    {0x31A0, 0x31BF}, {0x31F0, 0x31FF}, {0xA9E0, 0xA9FF}, {0xAA60, 0xAA7F}, {0xFF66, 0xFF9F},
};

}  // namespace

bool is_written_without_blanks(uint32_t code) {
  if (code < kRanges[0].first) return false;
  const uint8_t flags = flags_of(code);
  if ((flags & unicode::chinese) != 0) return true;
  if ((flags & (unicode::mark | unicode::punctuation)) != 0) return false;
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [code](const Range& range) { return code >= range.first && code <= range.last; });
}

WordCount count_words(std::string_view text) {
  enum { blank, marks, within, character } before = blank;  // marks: a run that has been of punctuation alone
  WordCount found;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const uint32_t code = next_code_point(at, end);
    const bool mark = (flags_of(code) & (unicode::mark | unicode::punctuation)) != 0;
    if (code == ' ' || (code >= '\t' && code <= '\r')) {
      before = blank;
    } else if (is_written_without_blanks(code)) {
      found.words += before != marks;
      ++found.characters;
      before = character;
    } else if (before == blank) {
      ++found.words;
      before = mark ? marks : within;
    } else if (!mark) {
      found.words += before == character;
      before = within;
    }
  }
  return found;
}

}  // namespace funicular::text
