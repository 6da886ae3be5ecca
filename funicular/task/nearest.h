#pragma once
// Exact nearest neighbours of queries among vectors that arrive block by block.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/format/npy.h"
#include "funicular/format/vector_codes.h"

namespace funicular::task {

enum class Similarity { cosine, dot, euclidean, manhattan };
/// The names of Similarity, in its order.
const std::vector<std::string>& similarity_names();
/// "": cosine.
Similarity parse_similarity(const std::string& name);

struct Neighbour {
  int64_t row = 0;  ///< of the index, from 0
  float score = 0;  ///< larger is nearer: the cosine, the product, or minus the distance
};

/// Whether row `a` of the index precedes row `b` if both have the same score.
using TieOrder = std::function<bool(int64_t a, int64_t b)>;

/// Keeps the best rows of each query.
class BestRows {
 public:
  BestRows(int64_t queries, int64_t k, TieOrder ties);

  /// Scores [Q, B] of Q queries from `first_query` on, for the B rows that advance() will count.
  void offer(int64_t first_query, const at::Tensor& scores);
  void advance(int64_t rows) { rows_ += rows; }
  /// The best rows of each query, the nearest first: k, or all if there are fewer.
  std::vector<std::vector<Neighbour>> found() const;

 private:
  bool before(const Neighbour& a, const Neighbour& b) const;
  void offer(std::vector<Neighbour>& kept, const float* scores, int64_t count) const;

  size_t k_;
  TieOrder ties_;
  std::vector<std::vector<Neighbour>> kept_;  ///< heaps, each with its worst row at the front
  int64_t rows_ = 0;
};

class NearestRows {
 public:
  /// `queries` [Q, D] of float32. `ties`: null for the smaller row first.
  NearestRows(const at::Tensor& queries, int64_t k, Similarity similarity, TieOrder ties = nullptr);

  /// The next rows of the index, [B, D] of float32.
  void add(const at::Tensor& block);
  std::vector<std::vector<Neighbour>> found() const { return best_.found(); }

 private:
  at::Tensor queries_;
  Similarity similarity_;
  BestRows best_;
};

/// Finds the nearest vectors in a file. A table with one bit per number is compared by the share of bits that are
/// equal: 1 for all, −1 for none. The bytes of byte tables represent numbers in `ranges`. Throws InputError if the
/// widths do not fit, and for such bytes without `ranges`.
std::vector<std::vector<Neighbour>> nearest_in_file(const format::NpyFile& index, const at::Tensor& queries,
                                                    int64_t k, Similarity similarity,
                                                    const format::VectorRanges& ranges = {});

}  // namespace funicular::task
