#pragma once
// Counts the words of a source for the training of a vocabulary (text/vocabulary_trainer.h), in bounded memory.

#include <cstdint>
#include <functional>

#include "funicular/data/row_source.h"
#include "funicular/text/training_words.h"

namespace funicular::data {

struct WordCountingOptions {
  int threads = 1;
  /// Different words that are kept. A block of the source may bring more. Then WordCounts::keep_most_frequent() leaves
  /// out the rarest of the words read so far. A word that comes back later begins at 0.
  size_t most_words = 10'000'000;
  size_t pieces_in_block = 64;  ///< counted before words are forgotten; more threads than pieces are idle
  std::function<void(uint64_t bytes)> progress = nullptr;  ///< called with the bytes read so far
};

struct CountedWords {
  text::WordCounts words;
  uint64_t bytes = 0;         ///< of text
  uint64_t forgotten = 0;     ///< words, each time that it was forgotten
  uint64_t skipped_rows = 0;  ///< bad rows that the source left out
};

/// Equal for any number of threads. Throws as RowSource::read does: the error of the first bad row of its block.
CountedWords count_words(const RowSource& source, const text::TrainingRules& rules,
                         const WordCountingOptions& options = {});

}  // namespace funicular::data
