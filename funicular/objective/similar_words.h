#pragma once
// Words that may replace a word: from a lexicon, or by the cosine of word vectors.

#include <span>
#include <vector>

#include "funicular/objective/phrases.h"

namespace funicular::objective {

struct SimilarWordsOptions {
  /// For word vectors: number of words with the largest cosines.
  int64_t count = 10;
  /// For word vectors: reads at most this many words that the tokenizer knows. Files list the most frequent words
  /// first. Time grows with the square of this number (20,000 words of 300 numbers: seconds).
  int64_t most_words = 20'000;
};

/// Words are sequences of token ids. A similar word has as many tokens and the same word starts as its word, so that
/// a text keeps its length and its words.
class SimilarWords {
 public:
  /// Reads a lexicon or word vectors. A file whose first line has a tab is a lexicon with lines `word<TAB>similar
  /// similar …`. Word vectors are text in GloVe's format: a word and its numbers, separated by blanks. In word2vec's
  /// format a first line gives the numbers of words and dimensions. Throws InputError for a line that does not fit
  /// the first one (FILE:LINE) and for a file that gives no word a similar one.
  static SimilarWords read(const fs::path& file, const text::Tokenizer& tokenizer,
                           const SimilarWordsOptions& options = {});

  /// The similar words of a word, concatenated: `of(word).size() / word.size()` words. Empty if there is none.
  std::span<const int32_t> of(std::span<const int32_t> word) const;

  int64_t words() const { return static_cast<int64_t>(lists_.size()); }
  int64_t words_without() const {
    return without_;
  }  ///< words of the file that the tokenizer knows, but without a similar word

 private:
  void add(std::span<const int32_t> word, const std::vector<int32_t>& list);
  void read_lexicon(const fs::path& file, const text::Tokenizer& tokenizer);
  void read_vectors(const fs::path& file, const text::Tokenizer& tokenizer,
                    const SimilarWordsOptions& options);

  Phrases words_;
  std::vector<std::vector<int32_t>> lists_;
  int64_t without_ = 0;
};

}  // namespace funicular::objective
