#pragma once
// manifest.json: size and XXH3 of every file of a folder, so that a half-written or damaged one is known as
// such.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "funicular/base/file.h"

namespace funicular::format {

inline constexpr const char* kManifestName = "manifest.json";

struct ManifestEntry {
  uint64_t size = 0;
  uint64_t hash = 0;  ///< XXH3
};
using Manifest = std::map<std::string, ManifestEntry>;  ///< by path relative to the folder, '/' between parts

/// Flushes every file in `folder` (recursively) to the disk, then writes manifest.json. `known` gives hashes
/// that the writer already has; files without one are read. Throws RunError.
void write_manifest(const fs::path& folder, const std::map<std::string, uint64_t>& known = {});

/// Throws InputError if it is missing or malformed.
Manifest read_manifest(const fs::path& folder);

/// The problem of the folder (file, expected, found), or nothing. With `deep` false only names and sizes are
/// compared. Files that the manifest does not name are no problem.
std::optional<std::string> verify_manifest(const fs::path& folder, bool deep = true);

}  // namespace funicular::format
