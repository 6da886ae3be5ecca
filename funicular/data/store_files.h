#pragma once
// The names and sizes of a token store's files, shared by its reader and its builder.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/base/file.h"

namespace funicular::data {

struct StoreMeta;

inline constexpr const char* kMetaFile = "meta.json";
inline constexpr const char* kTokensFile = "tokens.bin";
inline constexpr const char* kRowsFile = "rows.bin";
inline constexpr const char* kDocumentsFile = "documents.bin";
inline constexpr const char* kWordsFile = "words.bin";
inline constexpr const char* kLabelsFile = "labels.bin";
inline constexpr const char* kLabelRowsFile = "label_rows.bin";
inline constexpr const char* kWeightsFile = "weights.bin";

/// Size of a block with its own checksum, in new stores.
inline constexpr uint64_t kBlockBytes = uint64_t{4} << 20;

/// Remedy for a damaged store.
inline constexpr const char* kStoreRemedy = "copy the store again or make it again with `funicular tokenize`";

struct StoreFileSize {
  const char* name;
  uint64_t bytes;
};

/// The files of a store with these counts, except meta.json, and their sizes.
std::vector<StoreFileSize> store_file_sizes(const StoreMeta& meta);

/// The folder in which a store is built. It lies beside the final folder, so that a rename suffices.
inline fs::path building_folder(const fs::path& store) {
  const fs::path plain = store.has_filename() ? store : store.parent_path();  // "x.tokens/" is "x.tokens"
  return plain.parent_path() / ("." + plain.filename().string() + ".building");
}

}  // namespace funicular::data
