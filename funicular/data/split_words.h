#pragma once
// Finds the words of a corpus that a tokenizer splits into several pieces, as candidates for new tokens.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/data/token_store.h"
#include "funicular/text/word_piece.h"

namespace funicular::data {

struct SplitWord {
  std::string word;
  std::vector<int32_t> pieces;  ///< two or more
  uint64_t times = 0;           ///< occurrences in the corpus
  /// The number of tokens saved in the corpus if the word became one token.
  uint64_t saved() const { return times * (pieces.size() - 1); }
};

struct SplitWords {
  std::vector<SplitWord> words;  ///< by saved(), descending; ties in alphabetical order
  uint64_t tokens = 0;           ///< in the whole corpus
  uint64_t occurrences = 0;      ///< all words, including unsplit ones; characters of scripts without blanks
  uint64_t characters = 0;  ///< occurrences that are characters of scripts without blanks (text/scripts.h)
  uint64_t unknown = 0;     ///< unknown tokens, whose words the store does not have
};

/// Counts the words of a store, given by its word starts, in one pass. Memory grows with the number of split words.
/// Throws InputError unless the store was made with this tokenizer.
SplitWords count_split_words(const TokenStore& store, const text::WordPiece& tokenizer);

struct ProposalOptions {
  int64_t count = 1000;      ///< the most words to propose
  int64_t least_times = 5;   ///< skips rarer words
  int64_t least_pieces = 2;  ///< skips words with fewer pieces
};

/// The words that would shorten the corpus most, by tokens saved. Only words that can become tokens
/// (text::objection_to).
std::vector<SplitWord> propose_words(const SplitWords& counted, const text::WordPiece& tokenizer,
                                     const ProposalOptions& options);

/// Counts of the corpus under a tokenizer that differs only in its vocabulary; each split word is tokenised again.
struct Recount {
  uint64_t tokens = 0;
  uint64_t newly_unknown = 0;  ///< occurrences of words that were not unknown before
};
Recount recount(const SplitWords& counted, const text::WordPiece& extended);

}  // namespace funicular::data
