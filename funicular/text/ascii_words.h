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

  /// Bits of the places in the block. The n-th bit of `ends` is the place behind the word that begins at the
  /// n-th bit of `starts`.
  uint64_t starts = 0, ends = 0;
  /// The place of the first byte that is not ASCII, or is a control character other than a tab or line end;
  /// 64 if there is none. `ends` has no bits behind it.
  size_t known = 0;

  /// Reads 64 bytes at `text`, which must not be inside a word.
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

  /// The blank, or the end of the text, behind each word. The next word begins behind the blank.
  uint64_t ends = 0;

  /// Reads the first 64 of the `left` (1 or more) bytes at `text`, where a word must begin. Stops before a blank that
  /// follows the character `joined`. Pass a blank to stop at none.
  AsciiChunks(const char* text, size_t left, char joined = ' ') {
    const ByteBlock block(text);
    const uint64_t visible = block.within('!', '~');
    const uint64_t inner = block.equal(' ') & ((visible & ~block.equal(joined)) << 1) & (visible >> 1);
    const auto known = static_cast<size_t>(std::countr_one(visible | inner));
    ends = inner & low_bits(known);
    if (left < ByteBlock::size && known == left) ends |= uint64_t{1} << left;
  }
};

}  // namespace funicular::text
