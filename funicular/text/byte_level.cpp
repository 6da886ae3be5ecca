#include "funicular/text/byte_level.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "funicular/text/byte_block.h"
#include "funicular/text/utf8.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace funicular::text {
namespace {

using unicode::Category;

struct Alphabet {
  std::array<uint32_t, 256> characters{};
  std::array<int16_t, 512> bytes{};  // -1: none
  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      characters[byte] = printable ? byte : next++;
      bytes[characters[byte]] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

// The categories of all code points, in pages of 256. Most pages are equal and stored once.
struct Categories {
  std::array<uint8_t, 256> ascii{};
  std::array<uint16_t, 0x1100> page_of{};
  std::vector<std::array<uint8_t, 256>> pages;
  Categories() {
    std::vector<uint8_t> all(0x110000);
    const uint32_t* ranges = unicode::category_ranges;
    for (size_t i = 0; i < unicode::category_ranges_size; ++i) {
      const uint32_t begin = ranges[i] >> 8;
      const uint32_t end = i + 1 < unicode::category_ranges_size ? ranges[i + 1] >> 8 : 0x110000;
      std::fill(all.begin() + begin, all.begin() + end, static_cast<uint8_t>(ranges[i] & 0xFF));
    }
    std::copy_n(all.begin(), 128, ascii.begin());
    for (size_t page = 0; page < page_of.size(); ++page) {
      std::array<uint8_t, 256> values;
      std::copy_n(all.begin() + static_cast<ptrdiff_t>(256 * page), 256, values.begin());
      const auto found = std::find(pages.begin(), pages.end(), values);
      page_of[page] = static_cast<uint16_t>(found - pages.begin());
      if (found == pages.end()) pages.push_back(values);
    }
  }
  Category operator()(uint32_t code) const {
    return static_cast<Category>(pages[page_of[code >> 8]][code & 0xFF]);
  }
};

const Categories& categories() {
  static const Categories made;
  return made;
}

// Returns the category of the code point at `at`, and moves `at` behind it.
inline Category next_category(const char*& at, const char* end) {
  const auto byte = static_cast<uint8_t>(*at);
  if (byte < 0x80) return ++at, static_cast<Category>(categories().ascii[byte]);
  return categories()(next_valid_code_point(at, end));
}

// How many ASCII letters stand at the front of 16 bytes; 16 also when more follow.
inline int leading_letters(const char* text) {
#if defined(__SSE2__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text));
  const __m128i folded = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
  const __m128i letters = _mm_and_si128(_mm_cmpgt_epi8(folded, _mm_set1_epi8('a' - 1)),
                                        _mm_cmplt_epi8(folded, _mm_set1_epi8('z' + 1)));
  return std::countr_one(static_cast<uint32_t>(_mm_movemask_epi8(letters)));
#else
  int count = 0;
  while (count < 16 && static_cast<uint8_t>((text[count] | 0x20) - 'a') < 26) ++count;
  return count;
#endif
}

// Returns the end of the characters of `category` from `at` on.
inline const char* end_of_run(const char* at, const char* end, Category category) {
  while (at < end) {
    const char* behind = at;
    if (next_category(behind, end) != category) break;
    at = behind;
  }
  return at;
}

const char* end_of_letters(const char* at, const char* end) {
  for (;;) {
    const int count = leading_letters(at);
    at += count;
    if (at >= end) return end;
    if (count == 16) continue;
    if (static_cast<uint8_t>(*at) < 0x80) return at;
    while (at < end && static_cast<uint8_t>(*at) >= 0x80) {
      const char* behind = at;
      if (next_category(behind, end) != unicode::letter) return at;
      at = behind;
    }
  }
}

// The end of 's, 't, 're, 've, 'm, 'll or 'd, or `at` where none stands; *at is the apostrophe.
inline const char* end_of_contraction(const char* at, const char* end) {
  const ptrdiff_t left = end - at;
  if (left < 2) return at;
  switch (at[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return left > 2 && at[2] == 'e' ? at + 3 : at;
    case 'l':
      return left > 2 && at[2] == 'l' ? at + 3 : at;
    default:
      return at;
  }
}

// White space from `at` on. Its last character is left to what follows, unless it is the only one or nothing
// follows.
const char* end_of_white_space(const char* at, const char* end) {
  const char *last = at, *behind = at;
  while (behind < end) {
    const char* next = behind;
    if (next_category(next, end) != unicode::white_space) break;
    last = behind;
    behind = next;
  }
  return behind == end || last == at ? behind : last;
}

// Moves the beginnings behind contractions that begin at `starts`.
uint64_t with_contractions(uint64_t starts, uint64_t apostrophes, const char* at, const char* end) {
  for (uint64_t rest = starts & apostrophes; rest != 0; rest &= rest - 1) {
    const int place = std::countr_zero(rest);
    const auto size = static_cast<int>(end_of_contraction(at + place, end) - (at + place));
    if (size == 0) continue;
    starts &= ~(uint64_t{2} << place);  // the letters begin no piece
    if (place + size < 64) starts |= uint64_t{1} << (place + size);
  }
  return starts;
}

}  // namespace

uint32_t byte_character(uint8_t byte) {
  return alphabet().characters[byte];
}

std::string to_byte_characters(std::string_view bytes) {
  std::string result;
  for (const char byte : bytes) append_code_point(byte_character(static_cast<uint8_t>(byte)), result);
  return result;
}

bool append_token_bytes(std::string_view token, std::string& bytes) {
  const size_t before = bytes.size();
  for (const char *at = token.data(), *end = at + token.size(); at < end;) {
    const uint32_t code = next_code_point(at, end);
    const int byte = code < alphabet().bytes.size() ? alphabet().bytes[code] : -1;
    if (byte < 0) {
      bytes.resize(before);
      return false;
    }
    bytes.push_back(static_cast<char>(byte));
  }
  return true;
}

unicode::Category category_of(uint32_t code) {
  return categories()(code);
}

const char* end_of_piece(const char* at, const char* end) {
  const char* first = at + (*at == ' ');  // the blank before a word belongs to it
  if (leading_letters(first) > 0 && first < end) return end_of_letters(first, end);
  if (*at == '\'')
    if (const char* behind = end_of_contraction(at, end); behind != at) return behind;
  if (first < end) {
    const char* behind = first;
    const Category category = next_category(behind, end);
    if (category == unicode::letter) return end_of_letters(behind, end);
    if (category != unicode::white_space) return end_of_run(behind, end, category);
  }
  return end_of_white_space(at, end);
}

// Applies the pattern to ASCII. A run of letters, digits or other signs begins a piece, together with a blank
// before it. A run of white space begins a piece, and so does its last character unless the text ends there.
PieceStarts starts_of_pieces(const char* at, size_t left) {
  const ByteBlock block(at);
  const size_t size = std::min(left, ByteBlock::size);
  const bool ends = left < ByteBlock::size;
  const uint64_t text = low_bits(size), high = block.not_ascii() & text;
  const uint64_t letters = block.letters() & text, digits = block.within('0', '9') & text;
  const uint64_t blanks = block.equal(' ') & text, white = blanks | (block.within('\t', '\r') & text);
  const uint64_t others = text & ~(letters | digits | white | high);
  const auto begins = [](uint64_t run) { return run & ~(run << 1); };
  const uint64_t white_behind = white >> 1 | uint64_t{ends} << (size - 1);
  uint64_t starts = ((begins(letters) | begins(digits) | begins(others)) & ~(blanks << 1)) | begins(white) |
                    (white & ~white_behind);
  starts = with_contractions(starts, block.equal('\''), at, at + left);
  if (ends) starts |= uint64_t{1} << size;
  // Whether white space is the last of its run depends on the next character.
  const bool in_doubt = high != 0;
  const auto known = static_cast<size_t>(in_doubt ? std::countr_zero(high) : 64);
  const size_t decided = in_doubt || !ends ? known - (known > 0) : 64;
  return {starts & low_bits(decided) & ~uint64_t{1}, in_doubt};
}

}  // namespace funicular::text
