#include "funicular/base/json.h"

#include <algorithm>
#include <string>

namespace funicular {

Json parse_json(std::string_view text, std::string_view origin) {
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    const size_t byte = std::min(error.byte, text.size());
    // The last byte that was read, counted from 1, may be the line end that showed the token before it to be
    // wrong.
    const auto before = static_cast<ptrdiff_t>(byte > 0 ? byte - 1 : 0);
    const auto line = 1 + std::count(text.begin(), text.begin() + before, '\n');
    throw InputError("json", "{}:{}: not valid JSON (byte {}): {}", origin, line, byte,
                     std::string(error.what()));
  } catch (const Json::exception& error) {  // a number beyond a double's range is no parse_error
    throw InputError("json", "{}: cannot be read: {}", origin, std::string(error.what()));
  }
}

Json read_json(const fs::path& path) {
  return parse_json(read_file(path), path.string());
}

}  // namespace funicular
