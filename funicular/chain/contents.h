#pragma once
// Hashes of the contents of files and folders, independent of where they lie and of their times. A file that
// has not changed is not read twice.

#include <cstdint>
#include <map>
#include <string>

#include "funicular/base/file.h"

namespace funicular::chain {

/// A file as it was when it was read.
struct FileRecord {
  uint64_t size = 0, inode = 0;
  int64_t modified = 0, changed = 0;  ///< nanoseconds since 1970: of the contents, of anything
  std::string hash;                   ///< XXH3 of its contents, as base/hash.h writes it
  bool operator==(const FileRecord&) const = default;
};

/// Parts of a folder that count.
enum class Part {
  all,  ///< every file in it and below, hidden ones left out; of a run's folder run.json and metrics.jsonl
  tokenizer  ///< the files of a tokenizer only, so that other weights beside it are no other tokenizer
};

/// Hashes of what files and folders hold.
class Contents {
 public:
  /// `known`: from an earlier call's known().
  explicit Contents(std::map<std::string, FileRecord> known = {}) : known_(std::move(known)) {}

  /// The hash of a folder combines the names in it and the hashes of their contents. Empty where nothing is.
  /// Throws InputError for what is neither a file nor a folder, or cannot be read.
  std::string hash(const fs::path& path, Part part = Part::all);

  /// The files that were asked for, by their absolute path. A file that was written within two seconds of being read is
  /// not among them: a later change might leave it the same times.
  const std::map<std::string, FileRecord>& known() const { return used_; }
  /// How much was read so far, in bytes; for tests.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  std::string file(const fs::path& path);
  std::string folder(const fs::path& path, Part part);

  std::map<std::string, FileRecord> known_, used_;
  uint64_t bytes_read_ = 0;
};

}  // namespace funicular::chain
