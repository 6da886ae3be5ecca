#pragma once
// Finds the words whose vectors are nearest to a word's, by cosine.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/format/word_vectors.h"

namespace funicular::augment {

/// Thread-safe.
class NearWords {
 public:
  /// `count`: results per word. `any`: all words of the file can be results, as in TinyBERT's program; otherwise only
  /// words of letters. Throws InputError for a count below 1.
  NearWords(std::shared_ptr<const format::WordVectors> vectors, int64_t count, bool any);

  /// Returns the nearest words of each of `words` as numbers in the file, the nearest first; ties go to the smaller
  /// number. A word is not its own result. Matrix products find the words, and float64 sums in a fixed order rank
  /// them. Thus a word's result depends neither on the rest of `words` nor on the number of threads.
  std::vector<std::vector<int64_t>> nearest(std::span<const int64_t> words) const;

  const format::WordVectors& vectors() const { return *vectors_; }

 private:
  std::vector<int64_t> best_of(int64_t word, const float* cosines) const;
  double cosine(int64_t a, int64_t b) const;

  std::shared_ptr<const format::WordVectors> vectors_;
  int64_t count_;
  std::vector<float> offsets_;  ///< [words]: 0, or -infinity for words that are never results
};

}  // namespace funicular::augment
