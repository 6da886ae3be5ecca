#pragma once
// What is told to somebody who gives the name of a model on a hub where a folder is expected.

#include <string>

#include "funicular/base/file.h"

namespace funicular::format {

/// How a model on a hub is downloaded, behind "; ", where `folder` looks like its name (bert-base-uncased); "" where it looks
/// like a path.
std::string hub_hint(const fs::path& folder);

}  // namespace funicular::format
