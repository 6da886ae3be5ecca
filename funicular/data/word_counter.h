#pragma once
// Counts the words of a source for the training of a vocabulary (text/vocabulary_trainer.h), in bounded memory.

#include <cstdint>
#include <functional>

#include "funicular/data/row_source.h"
#include "funicular/text/training_words.h"

namespace funicular::data {

struct WordCountingOptions {
  int threads = 1;
  /// The most distinct words to keep. If a block of the source adds more, WordCounts::keep_most_frequent() drops the
  /// rarest words so far. A dropped word that occurs again later counts from 0.
  size_t most_words = 10'000'000;
  size_t pieces_in_block =
      64;  ///< pieces to count before words are dropped; threads beyond this number are idle
  std::function<void(uint64_t bytes)> progress = nullptr;  ///< called with the bytes read so far
};

struct CountedWords {
  text::WordCounts words;
  uint64_t bytes = 0;         ///< of text
  uint64_t forgotten = 0;     ///< dropped words; a word counts each time
  uint64_t skipped_rows = 0;  ///< bad rows that the source left out
};

/// The result is the same for any number of threads. Throws as RowSource::read does, with the error of the first bad
/// row of a block.
CountedWords count_words(const RowSource& source, const text::TrainingRules& rules,
                         const WordCountingOptions& options = {});

}  // namespace funicular::data
