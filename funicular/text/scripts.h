#pragma once
// Scripts that put no blanks between words: where words are counted, their characters are.

#include <cstdint>
#include <string_view>

namespace funicular::text {

/// Whether a code point is a character of Chinese, Japanese, Thai, Lao, Burmese, Khmer or Tibetan; combining marks are none.
bool is_written_without_blanks(uint32_t code);

struct WordCount {
  int64_t words = 0;  ///< those below, and all others: runs between ASCII blanks or beside such characters
  int64_t characters = 0;  ///< of scripts without blanks: a word each
};

/// Counts the words of a text in UTF-8.
WordCount count_words(std::string_view text);

}  // namespace funicular::text
