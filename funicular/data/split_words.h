#pragma once
// The words of a corpus that a tokenizer cuts into several pieces: what a vocabulary lacks.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/data/token_store.h"
#include "funicular/text/word_piece.h"

namespace funicular::data {

struct SplitWord {
  std::string word;
  std::vector<int32_t> pieces;  ///< two or more
  uint64_t times = 0;           ///< that it stands in the corpus
  /// Tokens that the corpus would be shorter by if the word were one.
  uint64_t saved() const { return times * (pieces.size() - 1); }
};

struct SplitWords {
  std::vector<SplitWord> words;  ///< by saved(), the largest first; equal ones by their letters
  uint64_t tokens = 0;           ///< of the whole corpus
  uint64_t occurrences = 0;  ///< of its words, those of one piece too; of scripts without blanks characters
  uint64_t characters = 0;   ///< of scripts without blanks (text/scripts.h), among the occurrences
  uint64_t unknown = 0;      ///< of the unknown token, whose words cannot be read from the store
};

/// Counts the words of a store, as its word starts tell them, in one pass. Takes memory for each word that is cut.
/// Throws InputError unless the store was made with this tokenizer.
SplitWords count_split_words(const TokenStore& store, const text::WordPiece& tokenizer);

struct ProposalOptions {
  int64_t count = 1000;      ///< at most so many
  int64_t least_times = 5;   ///< words that are less frequent are left out
  int64_t least_pieces = 2;  ///< and those of fewer pieces
};

/// The words that would shorten the corpus most, in that order; only words that can become tokens
/// (text::objection_to).
std::vector<SplitWord> propose_words(const SplitWords& counted, const text::WordPiece& tokenizer,
                                     const ProposalOptions& options);

/// Counts of the corpus under a tokenizer that differs only in its vocabulary, found by cutting each word
/// again.
struct Recount {
  uint64_t tokens = 0;
  uint64_t newly_unknown = 0;  ///< occurrences of words that could be spelled before
};
Recount recount(const SplitWords& counted, const text::WordPiece& extended);

}  // namespace funicular::data
