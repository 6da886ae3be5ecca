#pragma once
// The token store: tokenised text in a folder, memory-mapped. Mapping takes the same time for any size, and processes
// share the pages. A row is a set of spans into the store, never a copy.
//
// A store is a folder (by convention `NAME.tokens`) of little-endian arrays:
//
//   meta.json      format version, tokeniser, counts, label names. For each other file: its size, its XXH3
//                  checksum, and a checksum for each block of 4 MiB. Last line: its own checksum.
//   tokens.bin     uint16 (vocabularies of at most 65,536 tokens) or uint32: tokens of all columns of all rows.
//   rows.bin       uint64 [rows * columns + 1]: column c of row r is tokens
//                  [at(r * columns + c), at(r * columns + c + 1)).
//   documents.bin  uint64 [documents + 1]: document d is rows [at(d), at(d + 1)), which may include empty rows.
//   words.bin      bit i (bit i % 8 of byte i / 8) is 1 if token i begins a word.
//   labels.bin     if there are labels. One per row: int32 class numbers or float64 values. Lists of labels: the
//                  int32 class numbers of all rows. Shares and numbers: float64 [rows * labels].
//   label_rows.bin if rows have lists of labels: uint64 [rows + 1]: row r has the labels [at(r), at(r + 1)).
//   weights.bin    float64 [rows], if rows have weights.
//
// meta.json is written last, and the folder gets its name only then (see token_store_builder.h). A folder is
// refused without a complete meta.json, or if the sizes of its files differ from the ones in it. Contents are
// compared with their checksums when a store is opened (see StoreOpenOptions). Older stores, without checksums
// of blocks, are compared file by file.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/data/sample.h"

namespace funicular::text {
class Tokenizer;
}

namespace funicular::data {

struct StoreBlock;
class StoreVerification;

enum class LabelKind {
  none,        ///< rows have no labels
  classes,     ///< class numbers 0 .. label_names.size() - 1
  values,      ///< regression targets
  sets,        ///< any number of class numbers per row, ascending
  tags,        ///< a class number for each word of a row, in the words' order
  shares,      ///< a share of each class; a row's shares sum to 1
  set_shares,  ///< an independent share of each label, 0 to 1; NaN if unknown
  numbers,     ///< a finite number for each name
};

/// Whether a row has a list of labels (sets and tags).
constexpr bool has_label_lists(LabelKind kind) {
  return kind == LabelKind::sets || kind == LabelKind::tags;
}

/// Whether a row has a share, or another number, for each name.
constexpr bool has_shares(LabelKind kind) {
  return kind == LabelKind::shares || kind == LabelKind::set_shares || kind == LabelKind::numbers;
}

/// The contents of meta.json.
struct StoreMeta {
  static constexpr int64_t kVersion = 1;
  static constexpr int kMostColumns = 1000;
  static constexpr size_t kMostShares = 4096;

  uint64_t tokenizer_fingerprint = 0;
  std::string tokenizer_description;  ///< for people, e.g. "WordPiece, 30522 tokens, lower-cased"
  int64_t vocabulary_size = 0;        ///< every token id is below it
  int token_bytes = 2;                ///< 2 or 4
  int columns = 1;                    ///< 1 to kMostColumns
  uint64_t rows = 0, documents = 0, tokens = 0;
  uint64_t unknown_tokens = 0;  ///< number of unknown tokens
  uint64_t longest_row = 0;     ///< tokens of the longest row, over all columns
  LabelKind labels = LabelKind::none;
  std::vector<std::string> label_names;  ///< of the classes, in the order of their numbers
  uint64_t set_labels = 0;               ///< sets and tags: the number of labels of all rows
  bool weights = false;                  ///< whether rows have weights
  uint64_t block_bytes = 0;  ///< size of a block with its own checksum; 0: an older store without blocks

  struct File {
    std::string name;
    uint64_t bytes = 0;
    uint64_t checksum = 0;
    std::vector<uint64_t> blocks = {};  ///< checksums of its blocks; the last block may be shorter
    bool operator==(const File&) const = default;
  };
  std::vector<File> files;

  bool operator==(const StoreMeta&) const = default;
};

/// meta.json as text, the same for equal stores.
std::string write_store_meta(const StoreMeta& meta);
/// Adds the checksum of a JSON object as its last member, as in meta.json. `object` ends with "\n}".
std::string seal_store_meta(std::string_view object);
/// Reads and checks meta.json: version, its own checksum, ranges, and that each file's stated size follows
/// from the counts. `origin` names the file in errors. Throws InputError.
StoreMeta read_store_meta(std::string_view text, std::string_view origin);

/// A half-open range of rows or of tokens.
struct StoreRange {
  uint64_t begin = 0, end = 0;
  uint64_t size() const { return end - begin; }
};

/// The default number of bytes of a store that are verified before it is used. They take a tenth of a second if they
/// are in memory. FUNICULAR_VERIFY_FIRST overrides the number.
inline constexpr uint64_t kVerifiedFirst = uint64_t{256} << 20;
/// Throws InputError if FUNICULAR_VERIFY_FIRST is not a number of bytes.
uint64_t bytes_verified_first();

struct StoreOpenOptions {
  /// The number of bytes that are verified before open returns; tokens.bin comes last. A thread verifies the
  /// remaining bytes while the store is already in use.
  uint64_t verify_first = bytes_verified_first();
  /// If several processes on one host open the same store, each verifies its own blocks: this process is `part` of
  /// `parts`. The caller must share the result among the processes.
  int part = 0, parts = 1;
  bool verify = true;  ///< false: checks only meta.json and the sizes of the files
};

/// Immutable and safe to share between threads. Accessors check what they read from the files, so that a
/// damaged store gives an InputError and never a wild read.
class TokenStore {
 public:
  /// Maps the store, and verifies it as the options say. Throws InputError if there is no store, or only an
  /// interrupted build. Also throws it for a truncated or grown file, another version, or a wrong checksum; the
  /// message then names the file and the block.
  static std::shared_ptr<const TokenStore> open(const fs::path& folder, const StoreOpenOptions& options = {});
  ~TokenStore();

  /// Whether the store's own thread has found damage. Never waits.
  bool found_damaged() const;
  /// Waits until all blocks that open was to verify are verified. Throws InputError if one is damaged.
  void require_sound() const;

  /// Reads everything: checksums, order of the offsets, token ids and class numbers in range. Throws InputError
  /// naming the damaged file, and the block if its checksum differs.
  void verify() const;

  /// Throws InputError, naming both tokenisers, unless the store was made with one of this fingerprint.
  void require_tokenizer(uint64_t fingerprint, std::string_view description = "") const;
  void require_tokenizer(const text::Tokenizer& tokenizer) const;

  const StoreMeta& meta() const { return meta_; }
  const fs::path& folder() const { return folder_; }
  int64_t rows() const { return static_cast<int64_t>(meta_.rows); }
  int64_t documents() const { return static_cast<int64_t>(meta_.documents); }

  /// Row `row` with its label; sample_id is the row. 0 <= row < rows().
  Sample row(int64_t row) const;
  /// The rows of a document. 0 <= document < documents().
  StoreRange document_rows(int64_t document) const;
  /// The tokens of a document: all columns of its rows, end to end.
  StoreRange document_tokens(int64_t document) const;
  /// Starts of rows and of their columns strictly within a range of a document's tokens.
  RowStarts row_starts(int64_t document, StoreRange tokens) const;
  /// As above, for a range of the tokens of several documents, from the first to the last.
  RowStarts row_starts(int64_t first_document, int64_t last_document, StoreRange tokens) const;
  /// Any range of tokens as a column.
  Sample::Column tokens(StoreRange range) const;

  /// Hash of the contents (through their checksums) and of the tokeniser.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  TokenStore(const fs::path& folder, StoreMeta meta);
  MappedFile map(const char* name) const;
  void require_index(const char* what, int64_t index, uint64_t count) const;
  StoreRange range_at(const char* file, const uint64_t* bounds, uint64_t first, uint64_t last,
                      uint64_t limit) const;
  double label_at(uint64_t row) const;
  std::span<const int32_t> label_set_at(uint64_t row) const;
  std::vector<StoreBlock> blocks() const;
  void require_ends() const;
  void verify_contents() const;
  [[noreturn]] void damaged(std::string_view file, std::string_view what) const;

  fs::path folder_;
  StoreMeta meta_;
  uint64_t fingerprint_ = 0;
  MappedFile tokens_, rows_, documents_, words_, labels_, label_rows_, weights_;
  std::unique_ptr<const StoreVerification> verification_;  ///< last member: its thread reads the files above
};

}  // namespace funicular::data
