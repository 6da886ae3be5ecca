#pragma once
// UTF-8, one code point at a time.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace funicular::text {

constexpr uint32_t replacement_character = 0xFFFD;

/// Whether a byte continues a character.
inline bool continues_character(char byte) {
  return (byte & 0xC0) == 0x80;
}

/// Reads the code point at `at` (< end) and moves `at` behind it. A malformed sequence reads as U+FFFD, one
/// for each maximal subpart (Unicode 15, section 3.9, table 3-8), as Rust's from_utf8_lossy and Python's
/// "replace" do.
inline uint32_t next_code_point(const char*& at, const char* end) {
  const auto byte = [&](int i) { return static_cast<uint8_t>(at[i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return ++at, lead;
  const int length = lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  if (length == 1) return ++at, replacement_character;
  // The second byte is restricted further, against overlong forms, surrogates and values above U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (end - at < 2 || byte(1) < low || byte(1) > high) return ++at, replacement_character;
  uint32_t code = (lead & (0xFFu >> (length + 1))) << 6 | (byte(1) & 0x3Fu);
  for (int i = 2; i < length; ++i) {
    if (end - at <= i || !continues_character(at[i])) return at += i, replacement_character;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  at += length;
  return code;
}

/// next_code_point() of valid UTF-8, faster.
inline uint32_t next_valid_code_point(const char*& at, const char* end) {
  const auto byte = [&](int i) { return static_cast<uint8_t>(at[i]); };
  if ((byte(0) & 0xF0) != 0xE0 || end - at < 3) return next_code_point(at, end);
  const uint32_t code = (byte(0) & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
  return at += 3, code;
}

/// Writes the 1 to 4 bytes of a code point; returns the end.
inline char* put_code_point(uint32_t code, char* out) {
  if (code < 0x80) {
    *out++ = static_cast<char>(code);
  } else if (code < 0x800) {
    *out++ = static_cast<char>(0xC0 | code >> 6);
    *out++ = static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    *out++ = static_cast<char>(0xE0 | code >> 12);
    *out++ = static_cast<char>(0x80 | (code >> 6 & 0x3F));
    *out++ = static_cast<char>(0x80 | (code & 0x3F));
  } else {
    *out++ = static_cast<char>(0xF0 | code >> 18);
    *out++ = static_cast<char>(0x80 | (code >> 12 & 0x3F));
    *out++ = static_cast<char>(0x80 | (code >> 6 & 0x3F));
    *out++ = static_cast<char>(0x80 | (code & 0x3F));
  }
  return out;
}

inline void append_code_point(uint32_t code, std::string& out) {
  char bytes[4];
  out.append(bytes, put_code_point(code, bytes));
}

/// The last code point of `utf8` (not empty); `size` becomes its length in bytes.
inline uint32_t last_code_point(std::string_view utf8, int& size) {
  size = 1;
  while (size < 4 && size < static_cast<int>(utf8.size()) && continues_character(utf8[utf8.size() - size]))
    ++size;
  const char *end = utf8.data() + utf8.size(), *at = end - size;
  const uint32_t code = next_code_point(at, end);
  if (at == end) return code;
  size = 1;
  return replacement_character;
}

/// Start of the first malformed sequence; bytes.size() if there is none.
inline size_t first_invalid_utf8(std::string_view bytes) {
  constexpr uint64_t kNotAscii = 0x8080808080808080;
  for (const char *at = bytes.data(), *end = at + bytes.size(); at < end;) {
    uint64_t eight = kNotAscii;
    if (end - at >= 8) std::memcpy(&eight, at, 8);
    if ((eight & kNotAscii) == 0) {
      at += 8;
      continue;
    }
    // Behind these first bytes any two that continue a character will do: Chinese, Japanese, most of Korean.
    const auto lead = static_cast<uint8_t>(*at);
    if (lead > 0xE0 && lead < 0xED && end - at > 2 && continues_character(at[1]) &&
        continues_character(at[2])) {
      at += 3;
      continue;
    }
    const char* before = at;
    if (next_code_point(at, end) == replacement_character &&
        std::string_view(before, at - before) != "\xEF\xBF\xBD")
      return static_cast<size_t>(before - bytes.data());
  }
  return bytes.size();
}

/// True if the bytes are well-formed.
inline bool is_valid_utf8(std::string_view bytes) {
  return first_invalid_utf8(bytes) == bytes.size();
}

/// A copy of the text with every malformed sequence replaced by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

}  // namespace funicular::text
