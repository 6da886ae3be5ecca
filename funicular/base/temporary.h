#pragma once
// Files and folders that get their name when they are complete. Until then they stand beside their place
// under a name that nobody can guess, and that tells whose it is when a killed process has left it there.

#include <string_view>
#include <vector>

#include "funicular/base/file.h"

namespace funicular {

/// What the names of temporaries begin with.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

/// A new name beside `place`: "FOLDER/.tmp-NAME-0123456789abcdef", the digits random.
fs::path temporary_name(const fs::path& place);

/// Makes an empty folder with such a name. Throws RunError.
fs::path make_temporary_folder(const fs::path& place);

/// The temporaries of `place` that killed processes have left. Only a process that alone may write `place`
/// knows them for such.
std::vector<fs::path> temporaries_of(const fs::path& place);

/// Flushes all files and folders of `temporary`, makes it appear as the folder `place` in one step, and
/// flushes the folder that holds both. A folder that stands there changes places with it; where the system
/// cannot exchange two names, it is renamed first, and the place is empty for that moment. Returns where the
/// earlier folder is now, a temporary of `place` too; an empty path: there was none. Throws RunError; then
/// `place` is as it was.
fs::path put_in_place(const fs::path& temporary, const fs::path& place);

}  // namespace funicular
