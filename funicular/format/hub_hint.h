#pragma once
// What is told to somebody who gives the name of a model on a hub where a folder is expected.

#include <string>

#include "funicular/base/file.h"

namespace funicular::format {

/// Returns "; " and the line that downloads the model if `folder` looks like its name on a hub (bert-base-uncased), and "" if it
/// looks like a path.
std::string hub_hint(const fs::path& folder);

}  // namespace funicular::format
