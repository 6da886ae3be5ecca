#pragma once
// The shares and weights of a token store's rows.

#include <cstdint>
#include <optional>
#include <string>

#include "funicular/base/file.h"
#include "funicular/data/sample.h"
#include "funicular/data/token_store.h"

namespace funicular::data {

struct StoreDamage {
  const char* file;  ///< of the store
  std::string what;
};

/// Sets the sample's shares, the label with the greatest share, and its weight, if the store has them. Returns a
/// description of damage, if any. `labels`, `weights`: the store's files.
std::optional<StoreDamage> read_shares(const StoreMeta& meta, const MappedFile& labels,
                                       const MappedFile& weights, uint64_t row, Sample& sample);

}  // namespace funicular::data
