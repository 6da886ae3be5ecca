#pragma once
// Scripts that put no blanks between words: each of their characters counts as a word.

#include <cstdint>
#include <string_view>

namespace funicular::text {

/// Whether a code point is a character of Chinese, Japanese, Thai, Lao, Burmese, Khmer or Tibetan. False for
/// combining marks and punctuation.
bool is_written_without_blanks(uint32_t code);

struct WordCount {
  int64_t words = 0;       ///< `characters`, and the runs of other characters between them or ASCII blanks
  int64_t characters = 0;  ///< of scripts without blanks; each counts as a word
};

/// Counts the words of a text in UTF-8.
WordCount count_words(std::string_view text);

}  // namespace funicular::text
