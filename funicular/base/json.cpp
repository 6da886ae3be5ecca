#include "funicular/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "funicular/base/mapped_text.h"

namespace funicular {

namespace {

/// Returns the first byte that opens a level too many, or npos. The text must be valid JSON up to there.
size_t too_deep_at(std::string_view text) {
  const auto opening = [](char c) { return c == '{' || c == '['; };
  // Most texts do not have as many brackets at all, and this pass is several times faster than the next.
  if (std::count_if(text.begin(), text.end(), opening) <= kMaximumJsonDepth) return text.npos;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      while ((at = text.find_first_of("\\\"", at + 1)) < text.size() && text[at] == '\\') ++at;
      if (at >= text.size()) break;
    } else if (opening(text[at])) {
      if (++depth > kMaximumJsonDepth) return at;
    } else if (text[at] == '}' || text[at] == ']') {
      --depth;
    }
  }
  return text.npos;
}

auto line_of(std::string_view text, size_t byte) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(byte), '\n');
}

std::string too_deep(size_t byte) {
  return fmt::format("objects and lists are nested more than {} deep (byte {}), which is the limit",
                     kMaximumJsonDepth, byte + 1);
}

}  // namespace

std::string json_depth_problem(std::string_view text) {
  const size_t byte = too_deep_at(text);
  return byte == text.npos ? "" : too_deep(byte);
}

Json parse_json(std::string_view text, std::string_view origin) {
  if (const size_t byte = too_deep_at(text); byte != text.npos)
    throw InputError("json", "{}:{}: {}", origin, line_of(text, byte), too_deep(byte));
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    const size_t byte = std::min(error.byte, text.size());
    // The last byte that was read, counted from 1, may be the line end that showed the token before it to be
    // wrong.
    throw InputError("json", "{}:{}: not valid JSON (byte {}): {}", origin,
                     line_of(text, byte > 0 ? byte - 1 : 0), byte, std::string(error.what()));
  } catch (const Json::exception& error) {  // a number beyond a double's range is no parse_error
    throw InputError("json", "{}: cannot be read: {}", origin, std::string(error.what()));
  }
}

Json read_json(const fs::path& path) {
  return parse_json(read_text(path, "JSON"), path.string());
}

}  // namespace funicular
