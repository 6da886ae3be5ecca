#include "funicular/base/visible.h"

#include <fmt/format.h>

namespace funicular {

namespace {

/// The code point of two or three bytes at `at`, or 0: of characters that show nothing no other is needed.
unsigned code_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  if (byte(0) == 0xC2) return byte(1);
  if ((byte(0) & 0xF0) != 0xE0) return 0;
  return (byte(0) & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
}

bool shows_nothing(unsigned code) {
  const auto within = [&](unsigned first, unsigned last) { return code >= first && code <= last; };
  return within(0x80, 0x9F) || within(0x200B, 0x200F) || within(0x2028, 0x202E) || within(0x2060, 0x2069) ||
         code == 0xFEFF;
}

}  // namespace

std::string visible(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == '\r') {
      shown += "\\r";
    } else if (byte == '\t') {
      shown += "\\t";
    } else if ((byte < 0x20 && byte != '\n') || byte == 0x7F) {
      shown += fmt::format("\\x{:02x}", byte);
    } else if (const unsigned code = byte < 0xC2 ? 0 : code_at(text, at); shows_nothing(code)) {
      shown += fmt::format("\\u{:04x}", code);
      at += code < 0x800 ? 1 : 2;
    } else {
      shown += text[at];
    }
  }
  return shown;
}

}  // namespace funicular
