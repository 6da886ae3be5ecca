#pragma once
// Words of ASCII among 64 bytes, as BERT splits them: runs of letters and digits, and each other sign.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "funicular/text/byte_block.h"
#include "funicular/text/word_key.h"

namespace funicular::text {

struct AsciiWords {
  /// How many bytes behind the text must be readable blanks.
  static constexpr size_t readable_behind = ByteBlock::size + WordKey::readable;

  /// Bit i of `ends` is the end of a word that begins at the place of the same rank in `starts`.
  uint64_t starts = 0, ends = 0;
  /// The place of the first character that is no ASCII, or one of control; 64 if there is none. No word ends there
  /// or behind it.
  size_t known = 0;

  /// The bytes from `text` on, where no word goes on.
  explicit AsciiWords(const char* text) {
    const ByteBlock block(text);
    const uint64_t words = block.letters() | block.within('0', '9');
    const uint64_t signs = block.within('!', '~') & ~words;
    const uint64_t white = block.equal(' ') | block.equal('\t') | block.equal('\n') | block.equal('\r');
    known = static_cast<size_t>(std::countr_one(words | signs | white));
    starts = signs | (words & ~(words << 1));
    ends = (signs << 1 | (~words & words << 1)) & low_bits(known);
  }
};

/// Words of ASCII between single blanks among 64 bytes.
struct AsciiChunks {
  /// How many bytes behind the text must be readable zeros.
  static constexpr size_t readable_behind = ByteBlock::size + WordKey::readable;

  /// The blank, or the end of the text, behind each word. The next word begins behind that.
  uint64_t ends = 0;

  /// The first 64 of the `left` (1 or more) bytes from `text` on, where a word begins.
  AsciiChunks(const char* text, size_t left) {
    const ByteBlock block(text);
    const uint64_t visible = block.within('!', '~');
    const uint64_t inner = block.equal(' ') & (visible << 1) & (visible >> 1);
    const auto known = static_cast<size_t>(std::countr_one(visible | inner));
    ends = inner & low_bits(known);
    if (left < ByteBlock::size && known == left) ends |= uint64_t{1} << left;
  }
};

}  // namespace funicular::text
