#pragma once
// Writes the files of a token store in a temporary folder beside the final one; commit() makes it a store.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/token_store.h"

namespace funicular::data {

/// The hidden folder in which a store is built. It is locked while its builder lives, so that a second builder of the
/// same store is refused. After a crash, the next builder removes the leftover folder. The folder is always new and
/// writable only by its owner, so that nobody can place a link in it.
class BuildFolder {
 public:
  /// Throws InputError: `store` exists and may not be overwritten, or has files that are not a store's. Also
  /// InputError: another build of it is running, or the folder's name is taken (a link, a file, a folder with other
  /// files). RunError: the folder cannot be made.
  BuildFolder(const fs::path& store, bool overwrite);
  /// Removes the folder, and empty parents made for it, unless it was committed.
  ~BuildFolder();
  BuildFolder(const BuildFolder&) = delete;
  BuildFolder& operator=(const BuildFolder&) = delete;

  const fs::path& path() const { return path_; }
  /// Flushes the folder and renames it to the store's name. An old store is replaced in one step if the file system
  /// supports it. Throws RunError.
  void commit();

 private:
  void make();
  bool take_new();
  void clear_leftover() const;
  [[noreturn]] void refuse_running() const;
  void exchange_with_old();

  fs::path store_, path_;
  fs::path found_;   ///< the part of the path store_ that existed before
  int folder_ = -1;  ///< descriptor of the folder
  int lock_ = -1;    ///< descriptor of tokens.bin in it, which has the lock
  mode_t mode_ = 0;  ///< the store's mode; during the build only the owner may enter
  bool committed_ = false;
};

/// Some tokenised rows, from a tokenising thread to the writer.
struct EncodedRows {
  std::vector<uint8_t> tokens;          ///< token_bytes each
  std::vector<uint64_t> word_bits;      ///< bit i % 64 of element i / 64 belongs to token i
  std::vector<uint64_t> column_ends;    ///< rows * columns; counted from the first token here
  std::vector<uint64_t> document_rows;  ///< indices of the rows that begin a document
  std::vector<int32_t> classes;    ///< one per row, or one per label of its set or tags: index in class_names
  std::vector<uint64_t> set_ends;  ///< sets and tags: the end of each row's classes
  std::vector<double> values;      ///< one per row; with shares, one per label of a row
  std::vector<double> weights;     ///< one per row, if rows have weights
  std::vector<std::string> class_names;  ///< names of the classes, in order of first occurrence
  uint64_t rows = 0, tokens_count = 0, unknown_tokens = 0, longest_row = 0;
  void clear();
};

/// Appends rows to a store's files. Not thread-safe.
class StoreWriter {
 public:
  /// `meta` gives the tokeniser, token_bytes, columns, the kind of labels and any fixed label names. Without fixed
  /// names, the names are collected from the rows and sorted; as numbers if all are whole numbers. `meta.block_bytes`
  /// is at least 1.
  StoreWriter(const fs::path& store, bool overwrite, StoreMeta meta);
  ~StoreWriter();
  void append(const EncodedRows& rows);
  /// Completes all files, meta.json last, and renames the folder. Returns the contents of meta.json.
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

/// Sorts label names, whose order gives the class numbers: as numbers if all are whole numbers, else by bytes.
void sort_label_names(std::vector<std::string>& names);

}  // namespace funicular::data
