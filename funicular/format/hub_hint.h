#pragma once
// Hint for a user who gives the name of a model on a hub where a folder is expected.

#include <string>

#include "funicular/base/file.h"

namespace funicular::format {

/// Returns "; " and the line that downloads the model if `folder` looks like its name on a hub (bert-base-uncased). Returns ""
/// if `folder` looks like a path, or if its parent folder exists (runs/a).
std::string hub_hint(const fs::path& folder);

}  // namespace funicular::format
