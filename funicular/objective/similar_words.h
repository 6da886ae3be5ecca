#pragma once
// For each word the words that may stand in its place: from a lexicon, or by the cosine of word vectors.

#include <span>
#include <vector>

#include "funicular/objective/phrases.h"

namespace funicular::objective {

struct SimilarWordsOptions {
  /// For word vectors: number of words with the largest cosines.
  int64_t count = 10;
  /// For word vectors: read only this many words of the file that the tokenizer knows. Files have the most
  /// frequent words first; time grows with the square (20,000 words of 300 numbers: seconds).
  int64_t most_words = 20'000;
};

/// Words and similar ones are sequences of token ids, each as long as its word, with the same pieces beginning words, so
/// that a text keeps its length and its words.
class SimilarWords {
 public:
  /// Reads a lexicon, lines `word<TAB>similar similar …`, or word vectors as text (GloVe's: a word and its numbers,
  /// separated by blanks; word2vec's: the same after a line with the number of words and of numbers): a lexicon where
  /// the first line has a tab. Throws InputError for a line that does not fit the first one (FILE:LINE) and for a file
  /// that gives no word a similar one.
  static SimilarWords read(const fs::path& file, const text::Tokenizer& tokenizer,
                           const SimilarWordsOptions& options = {});

  /// The similar words of a word, end to end: `of(word).size() / word.size()` of them. Empty where there is none.
  std::span<const int32_t> of(std::span<const int32_t> word) const;

  int64_t words() const { return static_cast<int64_t>(lists_.size()); }
  int64_t words_without() const { return without_; }  ///< of the file, known to the tokenizer, but with none

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
