#pragma once
// Sequences filled with whole rows (RoBERTa: Liu et al. 2019, section 4.2, "FULL-SENTENCES" and "DOC-SENTENCES").

#include <cstdint>
#include <memory>
#include <vector>

#include "funicular/data/sample.h"
#include "funicular/data/token_store.h"

namespace funicular::data {

/// Packs the rows of a store (with all columns), in order, into samples: each sample takes as many rows as fit. A row
/// that is longer than a sample is cut, and its rest begins the next sample. The packing depends only on the store,
/// the length and `across`. The index takes one number per sample.
class SentencesDataset : public Dataset {
 public:
  /// `length` >= 1: tokens per sample. `across`: samples continue in the next document, and Sample::separators marks
  /// where a document begins; a separator counts as a token. Otherwise the end of a document ends a sample. Throws
  /// InputError for a damaged store.
  SentencesDataset(std::shared_ptr<const TokenStore> store, int64_t length, bool across);
  int64_t size() const override { return static_cast<int64_t>(begins_.size()) - 1; }
  Sample get(int64_t index) const override;
  /// The document that the sample begins in. With `across`, other samples may have a part of it.
  int64_t document_of(int64_t index) const override;
  uint64_t fingerprint() const override;
  bool found_damaged() const override { return store_->found_damaged(); }
  void require_sound() const override { store_->require_sound(); }

 private:
  StoreRange range(int64_t index) const;
  int64_t document_at(uint64_t token) const;
  std::shared_ptr<const TokenStore> store_;
  uint64_t length_;
  bool across_;
  std::vector<uint64_t> begins_;  ///< first token of each sample, and the end of the last sample
};

}  // namespace funicular::data
