#pragma once
// A record beside a finished file or folder, OUTPUT.made.json: it says what the output was made of. If a command was killed
// after its output was complete, the repeated command sees this by the record.

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular {

/// OUTPUT.made.json
fs::path made_record_of(const fs::path& output);

/// The hash of a file's contents; of a folder, that of the names and contents of all files in it and below. Throws
/// InputError for what cannot be read.
std::string hash_of_output(const fs::path& output);

/// Writes the record of an output whose contents have that hash (hash_of_output). `made_of`: everything that decides the output;
/// null: that is not known, and there is no record. `counts`: what the command reports. Write it before the output gets its name:
/// then a kill between the two leaves a record of nothing, which the next run replaces. Throws RunError.
void write_made_record(const fs::path& output, const std::string& hash, const Json& made_of,
                       const Json& counts);

/// The counts of an output that is complete, unchanged, and made of the same; null otherwise. Throws InputError for an
/// output that cannot be read.
Json counts_if_made_of(const fs::path& output, const Json& made_of);

}  // namespace funicular
