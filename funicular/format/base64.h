#pragma once
// Bytes as text of letters, digits, + and / (RFC 4648, section 4).

#include <string>
#include <string_view>

namespace funicular::format {

std::string to_base64(std::string_view bytes);
/// Returns false if the text is not valid: a foreign character, a length that is no multiple of 4, or
/// padding before the end.
bool from_base64(std::string_view text, std::string& bytes);

}  // namespace funicular::format
