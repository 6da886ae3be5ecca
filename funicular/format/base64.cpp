#include "funicular/format/base64.h"

#include <cstdint>

namespace funicular::format {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int value_of(char character) {
  if (character >= 'A' && character <= 'Z') return character - 'A';
  if (character >= 'a' && character <= 'z') return character - 'a' + 26;
  if (character >= '0' && character <= '9') return character - '0' + 52;
  return character == '+' ? 62 : character == '/' ? 63 : -1;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t three = 0;
    for (size_t i = 0; i < 3; ++i)
      three = three << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i)
      text.push_back(at + i <= bytes.size() ? kAlphabet[three >> (18 - 6 * i) & 63] : '=');
  }
  return text;
}

bool from_base64(std::string_view text, std::string& bytes) {
  if (text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  bytes.clear();
  bytes.reserve(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += 4) {
    uint32_t three = 0;
    for (size_t i = 0; i < 4; ++i) {
      const bool pads = at + i >= text.size() - padding;
      const int value = pads ? 0 : value_of(text[at + i]);
      if (value < 0) return false;
      three = three << 6 | static_cast<uint32_t>(value);
    }
    for (size_t i = 0; i < 3; ++i) bytes.push_back(static_cast<char>(three >> (16 - 8 * i) & 0xFF));
  }
  bytes.resize(bytes.size() - padding);
  return true;
}

}  // namespace funicular::format
