#pragma once
// Texts as messages show them.

#include <string>
#include <string_view>

namespace funicular {

/// Escapes control characters and invisible characters of the text, except \n: "ham\r" is shown as ham\\r, a
/// byte-order mark as \\ufeff. Texts that differ only by such a character would look alike. Error and
/// log::write show their messages so.
std::string visible(std::string_view text);

}  // namespace funicular
