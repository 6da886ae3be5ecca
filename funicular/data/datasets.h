#pragma once
// Datasets over a token store (its rows, or its documents in pieces), and subsets of a dataset.

#include <cstdint>
#include <memory>
#include <vector>

#include "funicular/data/sample.h"
#include "funicular/data/token_store.h"

namespace funicular::data {

/// Every row is a sample, with its label. For classification, pairs and regression.
class RowDataset : public Dataset {
 public:
  /// Shares the store, which may be open in several datasets.
  explicit RowDataset(std::shared_ptr<const TokenStore> store);
  /// The rows of the store.
  int64_t size() const override { return store_->rows(); }
  /// Row `index`, 0 <= index < size(). Its spans are valid while the store is open.
  Sample get(int64_t index) const override { return store_->row(index); }
  /// The document in which a row lies.
  int64_t document_of(int64_t index) const override;
  /// Hash of the store's contents.
  uint64_t fingerprint() const override;
  /// As Dataset::found_damaged.
  bool found_damaged() const override { return store_->found_damaged(); }
  /// As Dataset::require_sound.
  void require_sound() const override { store_->require_sound(); }
  /// The store of the rows.
  const TokenStore& store() const { return *store_; }

 private:
  std::shared_ptr<const TokenStore> store_;
};

/// Documents for masked language modelling. The tokens of a document's rows (all columns) are concatenated and cut
/// into the fewest pieces of at most `length` tokens. The lengths of the pieces differ by at most one. A short
/// document is one sample, an empty one none. The index takes one number per 16 documents.
class ChunkDataset : public Dataset {
 public:
  /// `length` >= 1: tokens per piece, without the special tokens that the objective adds. Throws InputError for a
  /// damaged store.
  ChunkDataset(std::shared_ptr<const TokenStore> store, int64_t length);
  /// The pieces of all documents.
  int64_t size() const override { return size_; }
  /// Piece `index`, 0 <= index < size(): one column. Its spans are valid while the store is open.
  Sample get(int64_t index) const override;
  /// The document of a piece.
  int64_t document_of(int64_t index) const override { return locate(index).document; }
  /// Hash of the store's contents and of the length.
  uint64_t fingerprint() const override;
  /// As Dataset::found_damaged.
  bool found_damaged() const override { return store_->found_damaged(); }
  /// As Dataset::require_sound.
  void require_sound() const override { store_->require_sound(); }
  /// The store of the documents.
  const TokenStore& store() const { return *store_; }

 private:
  struct Place {
    int64_t document = 0;
    int64_t piece = 0;   ///< index among the document's pieces
    int64_t pieces = 0;  ///< number of the document's pieces
    StoreRange tokens;   ///< the document's
  };
  int64_t pieces_of(StoreRange tokens) const;
  Place locate(int64_t index) const;

  std::shared_ptr<const TokenStore> store_;
  int64_t length_;
  int64_t size_ = 0;
  std::vector<int64_t> first_pieces_;  ///< first piece of documents 0, 16, 32 …
};

/// The marked samples of `base`, in its order. It takes one bit per sample, and a running count per 512 samples.
class SubsetDataset : public Dataset {
 public:
  /// `marks`: bit i % 64 of element i / 64 says whether sample i belongs to the subset. `identity` distinguishes the
  /// subsets of one base.
  SubsetDataset(std::shared_ptr<const Dataset> base, std::vector<uint64_t> marks, uint64_t identity);
  /// The marked samples.
  int64_t size() const override { return size_; }
  /// Sample `index` of the subset, 0 <= index < size(). Its sample_id is the index in the subset.
  Sample get(int64_t index) const override;
  /// The document in the base.
  int64_t document_of(int64_t index) const override { return base_->document_of(base_index(index)); }
  /// Hash of the base's fingerprint and of the identity.
  uint64_t fingerprint() const override;
  /// As Dataset::found_damaged.
  bool found_damaged() const override { return base_->found_damaged(); }
  /// As Dataset::require_sound.
  void require_sound() const override { base_->require_sound(); }
  /// The index in `base` of sample `index`.
  int64_t base_index(int64_t index) const;

 private:
  std::shared_ptr<const Dataset> base_;
  std::vector<uint64_t> marks_;
  std::vector<int64_t> ranks_;  ///< marked samples before each block of 512
  uint64_t identity_;
  int64_t size_ = 0;
};

/// The two parts of a dataset.
struct Split {
  std::shared_ptr<const Dataset> train;     ///< the documents to train on
  std::shared_ptr<const Dataset> held_out;  ///< the documents for evaluation
};

/// Holds out about `fraction` (0 < fraction < 1) of the documents for evaluation, whole documents only. Document d is
/// held out if and only if XXH3(seed, d) < fraction * 2^64. Thus the choice does not depend on how documents are cut.
/// If no document is held out (or all are), the one with the smallest (largest) hash moves to the empty side. Throws
/// InputError for fewer than two documents.
Split split_dataset(std::shared_ptr<const Dataset> dataset, double fraction, uint64_t seed);

}  // namespace funicular::data
