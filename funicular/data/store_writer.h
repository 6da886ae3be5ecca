#pragma once
// Writes the files of a token store, in order, beside their final place; commit() makes them a store.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"

namespace funicular::data {

/// The hidden folder in which a store is built. It is locked while its builder lives, so that a second
/// builder of the same store is refused, and one that comes after a crash clears what the dead one left. It
/// is always a new folder in which nobody else may write, so that nothing is written through somebody's link.
class BuildFolder {
 public:
  /// Throws InputError: `store` exists (and may not be overwritten, or holds other files than a store's),
  /// another build of it is running, or something else has the folder's name (a link, a file, a folder with
  /// other files). RunError: the folder cannot be made.
  BuildFolder(const fs::path& store, bool overwrite);
  /// Removes the folder unless it was committed, and its empty parents that were made for it.
  ~BuildFolder();
  BuildFolder(const BuildFolder&) = delete;
  BuildFolder& operator=(const BuildFolder&) = delete;

  const fs::path& path() const { return path_; }
  /// Flushes the folder and renames it to the store's name, replacing the old store in one step where the
  /// file system can. Throws RunError.
  void commit();

 private:
  void make();
  bool take_new();
  void clear_leftover() const;
  [[noreturn]] void refuse_running() const;
  void exchange_with_old();

  fs::path store_, path_;
  fs::path found_;   ///< the part of store_ that was there before
  int folder_ = -1;  ///< descriptors: of the folder,
  int lock_ = -1;    ///< of tokens.bin in it, which holds the lock
  mode_t mode_ = 0;  ///< of the store; while it is built only its owner may enter
  bool committed_ = false;
};

/// Some rows, tokenised: what a tokenising thread hands to the writer.
struct EncodedRows {
  std::vector<uint8_t> tokens;           ///< token_bytes each
  std::vector<uint64_t> word_bits;       ///< bit i % 64 of element i / 64 belongs to token i
  std::vector<uint64_t> column_ends;     ///< rows * columns; counted from the first token here
  std::vector<uint64_t> document_rows;   ///< rows here that begin a document
  std::vector<int32_t> classes;          ///< one a row, or those of its set or tags: index in class_names
  std::vector<uint64_t> set_ends;        ///< of sets and tags, one a row: where its classes end
  std::vector<double> values;            ///< one a row; of shares one for each label of a row
  std::vector<double> weights;           ///< one a row, where rows have weights
  std::vector<std::string> class_names;  ///< of the classes, in the order in which they were met here
  uint64_t rows = 0, tokens_count = 0, unknown_tokens = 0, longest_row = 0;
  void clear();
};

/// Appends rows to a store's files. One thread at a time.
class StoreWriter {
 public:
  /// `meta` gives the tokeniser, token_bytes, columns, the kind of labels and, where they are fixed, the
  /// label names; otherwise the names are those that are met, sorted (as numbers where all are whole
  /// numbers). `meta.block_bytes` is at least 1.
  StoreWriter(const fs::path& store, bool overwrite, StoreMeta meta);
  ~StoreWriter();
  void append(const EncodedRows& rows);
  /// Completes all files, meta.json last, and gives the folder its name. Returns what meta.json says.
  StoreMeta commit();

 private:
  class File;
  std::unique_ptr<File> make_file(const char* name) const;
  void append_bits(const EncodedRows& rows);
  void append_offsets(const EncodedRows& rows);
  void append_labels(const EncodedRows& rows);
  void finish_labels();

  BuildFolder folder_;
  StoreMeta meta_;
  bool fixed_names_;
  std::unique_ptr<File> tokens_, rows_, documents_, words_, labels_, label_rows_, weights_;
  uint64_t pending_bits_ = 0;
  std::vector<uint64_t> scratch_;
};

/// Label names in the order of their class numbers: as whole numbers where all are, else by their bytes.
void sort_label_names(std::vector<std::string>& names);

}  // namespace funicular::data
