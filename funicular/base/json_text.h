#pragma once
// JSON as text, whatever bytes its strings hold.

#include <string>

#include "funicular/base/json.h"

namespace funicular {

/// `json` as UTF-8. Bytes that are not UTF-8 become U+FFFD: on Linux names of files may hold any bytes, and the library
/// throws for them otherwise. `indent`: of each level in blanks, -1 for one line. `ascii`: whether other characters are
/// escaped.
template <class AnyJson>
std::string json_text(const AnyJson& json, int indent = -1, bool ascii = false) {
  return json.dump(indent, ' ', ascii, AnyJson::error_handler_t::replace);
}

}  // namespace funicular
