#pragma once
// The words whose vectors are nearest to a word's, by cosine.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/format/word_vectors.h"

namespace funicular::augment {

/// Threads may share it.
class NearWords {
 public:
  /// `count`: how many of a word. `any`: all words of the file may be given, as TinyBERT's program does it; otherwise
  /// those of letters alone. Throws InputError for a count below 1.
  NearWords(std::shared_ptr<const format::WordVectors> vectors, int64_t count, bool any);

  /// The nearest words of each of `words`, numbers of the file, the nearest first, of equal ones the smaller number; a
  /// word itself is none. Products of matrices find them, and sums in float64 in the order of the dimensions put them
  /// in order, so that a word's result depends neither on the others nor on the number of threads.
  std::vector<std::vector<int64_t>> nearest(std::span<const int64_t> words) const;

  const format::WordVectors& vectors() const { return *vectors_; }

 private:
  std::vector<int64_t> best_of(int64_t word, const float* cosines) const;
  double cosine(int64_t a, int64_t b) const;

  std::shared_ptr<const format::WordVectors> vectors_;
  int64_t count_;
  std::vector<float> offsets_;  ///< [words]: 0, or -infinity for those that are never given
};

}  // namespace funicular::augment
