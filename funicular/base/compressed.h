#pragma once
// Compressed files where text is expected: known by their first bytes, and refused with the line that unpacks them.

#include <string>
#include <string_view>

namespace funicular {

/// Throws InputError where `text`, the contents of `name` or as much of them as there is, begins as a file of gzip, zstd,
/// bzip2, xz, zip or 7z does.
void refuse_compressed(std::string_view text, const std::string& name);

/// Whether a text that begins with these bytes may still turn out to be compressed: more of it is needed to tell.
bool may_be_compressed(std::string_view begin);

/// Throws InputError where the name ends as those of compressed files do (".gz", in either case).
void refuse_name_of_compressed(const std::string& name);

}  // namespace funicular
