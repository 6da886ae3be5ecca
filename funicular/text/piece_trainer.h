#pragma once
// Training of a unigram language model of pieces (Kudo 2018, "Subword Regularization", section 3.2), as SentencePiece
// and Hugging Face `tokenizers` do it.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/text/word_counts.h"

namespace funicular::text {

struct PieceTrainingOptions {
  size_t size = 0;            ///< pieces wanted, each character of the words among them
  size_t longest = 16;        ///< characters of a piece
  size_t seeds = 1'000'000;   ///< pieces at the beginning
  double kept_share = 0.75;   ///< of the pieces, in each round of pruning
  int expectation_steps = 2;  ///< EM steps in each round
  int threads = 1;            ///< the result does not depend on it
};

struct TrainedPiece {
  std::string text;
  double score = 0;  ///< natural logarithm of the probability
};

/// The pieces by their scores, the highest first; equal ones by their bytes. `words` are different from each other,
/// valid UTF-8 and sorted. Fewer pieces than wanted come back where the words have no more. Throws InputError where the
/// words have more characters than pieces are wanted.
///
/// 1. Seeds are all characters, scored by how often each stands in the text, and branching texts of 2 to `longest`
///    characters. A text branches if different characters, or ends of words, follow it.
///    Its score is the number of its places times its length.
/// 2. EM computes expected counts over all paths through each word. It drops counts below 0.5 and scores by digamma.
/// 3. Pruning keeps the pieces whose absence would cost the most likelihood, if the second best path took their places.
///    Rounds of 2 and 3 end at 1.1 times the wanted size.
/// 4. The result is all characters, then the pieces of the highest scores.
std::vector<TrainedPiece> train_pieces(const std::vector<CountedWord>& words,
                                       const PieceTrainingOptions& options);

/// Seeds of step 1: the logarithms of the shares of their scores.
std::vector<TrainedPiece> seed_pieces(const std::vector<CountedWord>& words,
                                      const PieceTrainingOptions& options);

}  // namespace funicular::text
