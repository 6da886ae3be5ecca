#pragma once
// Sequences filled with whole rows (RoBERTa: Liu et al. 2019, section 4.2, "FULL-SENTENCES" and "DOC-SENTENCES").

#include <cstdint>
#include <memory>
#include <vector>

#include "funicular/data/sample.h"
#include "funicular/data/token_store.h"

namespace funicular::data {

/// The rows of a store (their columns, too), in their order, as many a sample as fit; a row that is longer than a sample
/// is cut, and what is left of it begins the next. Which rows a sample has depends on the store and the length
/// alone. The index is one number a sample.
class SentencesDataset : public Dataset {
 public:
  /// `length` >= 1: tokens a sample. `across`: samples continue in the next document, and Sample::separators
  /// say where one begins; a separator counts as a token. Otherwise a document ends a sample. Throws
  /// InputError (damaged store).
  SentencesDataset(std::shared_ptr<const TokenStore> store, int64_t length, bool across);
  int64_t size() const override { return static_cast<int64_t>(begins_.size()) - 1; }
  Sample get(int64_t index) const override;
  /// The document that the sample begins in. Across documents, other samples may hold a part of it.
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
  std::vector<uint64_t> begins_;  ///< token that each sample begins with, and the end of the last
};

}  // namespace funicular::data
