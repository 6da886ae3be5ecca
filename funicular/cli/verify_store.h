#pragma once
// Verifies a token store for the commands that tell a user about it: its checksums, and whether it fits a tokeniser.

#include <string>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"

namespace funicular::cli {

/// Verifies all of the store and says, in a line, what that was, how long it took, and how fast it was.
/// Throws InputError where the store is damaged.
std::string verify_store(const fs::path& folder);

/// Warns where more than a fifth of the tokens are the unknown one.
void warn_of_unknown_tokens(const data::StoreMeta& meta, const fs::path& store);

}  // namespace funicular::cli
