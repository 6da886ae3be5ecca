#pragma once
// Builds a token store from text. Several threads tokenise, one at a time writes in order, and memory is bounded. The
// store is identical byte for byte for any number of threads.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/row_source.h"
#include "funicular/data/store_files.h"
#include "funicular/data/token_store.h"

namespace funicular::data {

/// The progress of a build.
struct StoreProgress {
  uint64_t bytes = 0;        ///< text read so far
  uint64_t total_bytes = 0;  ///< all of the text
  uint64_t rows = 0;         ///< written so far
  uint64_t tokens = 0;       ///< written so far
};

/// Options of a build.
struct StoreBuildOptions {
  int threads = 0;            ///< 0: all processors of the machine
  bool overwrite = false;     ///< replace an existing store; never a folder with other files in it
  bool refuse_empty = false;  ///< throws InputError if the source has no row
  /// Kind of the source's labels; `none` ignores them.
  LabelKind labels = LabelKind::none;
  /// Names of the classes, in the order of their numbers; any other label is an error. Empty: the names in the rows,
  /// sorted. Give the training set's names to the evaluation set's store, so that both number their classes alike.
  std::vector<std::string> label_names = {};
  /// For LabelKind::sets: the separator between the labels of a row, without blanks around it. An empty part
  /// is no label. A list of JSON needs none.
  std::string label_separator = ",";
  /// The text is words separated by blanks, such as segmented Chinese, and only these words begin words in the store.
  /// Needs WordPiece, whose tokens do not depend on the blanks.
  bool presegmented = false;
  uint64_t block_bytes = kBlockBytes;  ///< size of a block with its own checksum; 1 or more
  /// Called on the building thread about ten times per second.
  std::function<void(const StoreProgress&)> progress = nullptr;
  /// Called as often; true stops the build. The build then leaves no files and throws Error with
  /// ExitCode::interrupted.
  std::function<bool()> stop = nullptr;
};

/// The outcome of a build.
struct StoreBuildResult {
  StoreMeta meta;             ///< the store's meta.json
  uint64_t text_bytes = 0;    ///< bytes of text that were read
  uint64_t store_bytes = 0;   ///< bytes of the store's files
  uint64_t skipped_rows = 0;  ///< bad rows that the source left out
  double seconds = 0;         ///< wall-clock time
};

/// Builds the store `output`. It appears under that name only when it is complete and on the disk. After an
/// error or a crash the previous store is still there. Throws InputError (wrong rows: the first one in the
/// source's order), RunError (disk), Error with ExitCode::interrupted.
StoreBuildResult build_token_store(const text::Tokenizer& tokenizer, const RowSource& source,
                                   const fs::path& output, const StoreBuildOptions& options = {});

}  // namespace funicular::data
