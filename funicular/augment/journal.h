#pragma once
// Work on numbered pieces that any number of processes share, and that goes on where killed ones left it: each
// process appends the results of its pieces to a file of its own, and what is whole counts.

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
  /// The folder of an output file, beside it: OUTPUT.parts.
  static fs::path folder_of(const fs::path& output);

  /// Makes the folder for work that `identity` describes, or finds it. What other work left there is removed, and
  /// said. By one process, before the others open theirs; it keeps the lock that is returned until the work is done.
  /// Throws InputError for a folder that is no journal, or in which another command works now.
  static std::unique_ptr<FolderLock> prepare(const fs::path& folder, const Json& identity);
  /// Removes the folder, if it is there, in one step, and what a process that was killed here left of it.
  static void remove(const fs::path& folder);

  /// Reads what is there: the pieces that are whole. Throws InputError where the folder is not there (on another
  /// host, perhaps).
  explicit Journal(fs::path folder);

  bool has(int64_t piece) const { return places_.contains(piece); }
  size_t size() const { return places_.size(); }
  /// Adds a piece's result, `note` (JSON, one object) and text, and hands it to the system: it survives this process.
  void add(int64_t piece, const Json& note, std::string_view text);

  struct Piece {
    Json note;
    std::string text;
  };
  /// A piece that is there. Throws RunError where it is not.
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
