#pragma once
// Shares work on numbered pieces among processes and resumes it after a crash. Each process appends the results of
// its pieces to its own file. Complete pieces count.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/temporary.h"

namespace funicular::augment {

class Journal {
 public:
  /// The journal's folder, beside the output file: OUTPUT.parts.
  static fs::path folder_of(const fs::path& output);

  /// Makes the folder for the work that `identity` describes, or reuses it. Removes leftovers of other work with a
  /// warning. One process calls it before any process opens a Journal, and keeps the returned lock until the work is
  /// done. Throws InputError for a folder that is no journal, or that another command is using.
  static std::unique_ptr<FolderLock> prepare(const fs::path& folder, const Json& identity);
  /// Removes the folder, if it exists, in one step, and leftovers of processes that were killed while removing it.
  static void remove(const fs::path& folder);

  /// Reads the complete pieces. Throws InputError if the folder does not exist (perhaps on another host).
  explicit Journal(fs::path folder);

  bool has(int64_t piece) const { return places_.contains(piece); }
  size_t size() const { return places_.size(); }
  /// Adds a piece's result, `note` (a JSON object) and text, and flushes it to the system, so that it survives this
  /// process.
  void add(int64_t piece, const Json& note, std::string_view text);

  struct Piece {
    Json note;
    std::string text;
  };
  /// Reads a piece. Throws RunError if the journal lacks it.
  Piece read(int64_t piece) const;

 private:
  struct Place {
    fs::path file;
    uint64_t offset = 0, note_size = 0, text_size = 0;
  };
  void scan(const fs::path& file);
  fs::path folder_;
  std::map<int64_t, Place> places_;
  std::optional<FileWriter> writer_;
  fs::path own_;
};

}  // namespace funicular::augment
