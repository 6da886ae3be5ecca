#pragma once
// Texts as messages show them.

#include <string>
#include <string_view>

namespace funicular {

/// The text with its control characters and those that show nothing (but \n) escaped: "ham\r" is shown as ham\\r, a byte-order mark as
/// \\ufeff. Texts that differ only by such a character would look alike. Error and log::write show their messages so.
std::string visible(std::string_view text);

}  // namespace funicular
