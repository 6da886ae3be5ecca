#pragma once
// Character properties as Hugging Face `tokenizers` sees them; they differ from every version of Unicode. Generated
// by tools/generate_unicode_tables.py; read through normalizer.h.

#include <cstddef>
#include <cstdint>

namespace funicular::text::unicode {

/// Properties of a code point.
enum Flag : uint8_t {
  dropped = 1,      ///< removed when text is cleaned (controls, unassigned, private, NUL, U+FFFD)
  space = 2,        ///< becomes a blank when text is cleaned
  chinese = 4,      ///< gets blanks around it
  mark = 8,         ///< removed when accents are stripped (after decomposition)
  white = 16,       ///< separates words
  punctuation = 32, ///< is a word of its own
  word = 64,        ///< \w of the regular expressions that match added tokens
};

// Change points: (first code point << 8 | value); the value holds until the next change point.
extern const uint32_t flag_ranges[];
extern const std::size_t flag_ranges_size;
// The same for combining classes: ranks that keep their order; 0 (also before the first) for starters.
extern const uint32_t rank_ranges[];
extern const std::size_t rank_ranges_size;
// Four numbers a run: first, last, step, lower case of first; the difference is the same in the whole run.
extern const uint32_t lower_ranges[];
extern const std::size_t lower_ranges_size;
// Rows (code point, parts…); the last part of a row has its top bit set. Sorted by code point.
extern const uint32_t lower_sequences[];
extern const std::size_t lower_sequences_size;
extern const uint32_t decompositions[];
extern const std::size_t decompositions_size;

}  // namespace funicular::text::unicode
