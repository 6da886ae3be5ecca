#pragma once
// A token store read whole, for the commands whose purpose that is.

#include <string>

#include "funicular/base/file.h"

namespace funicular::cli {

/// Verifies all of the store and says, in a line, what that was, how long it took, and how fast it was.
/// Throws InputError where the store is damaged.
std::string verify_store(const fs::path& folder);

}  // namespace funicular::cli
