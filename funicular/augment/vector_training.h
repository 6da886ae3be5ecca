#pragma once
// Word vectors from a corpus, small ones, so that multi-piece words can be varied without a file from elsewhere.
//
// The objective is that of the skip-gram model with negative samples (Mikolov, Sutskever, Chen, Corrado, Dean,
// "Distributed Representations of Words and Phrases and their Compositionality", 2013, equation 4), on counted pairs:
// the sum over pairs of words i, j of f(X_ij) (-log s(w_i · c_j) - sum over K samples n of log s(-w_i · c_n)), where
// s is the logistic function, X_ij counts how often j stands within a window around i, each time 1 / distance, and
// the samples come from the words' counts to the power 0.75. f(x) = min(1, (x / x_max)^0.75) keeps frequent pairs
// from ruling (Pennington, Socher, Manning, "GloVe: Global Vectors for Word Representation", 2014, equation 9).
// GloVe's own objective does not see pairs that never occur, and in a small corpus these tell the most.
//
// The published programs let threads update both sides at once without locks, so that no two runs are equal. Here the
// words' side and the contexts' side take turns: while one learns, by stochastic gradients with AdaGrad (one sum a
// row), the other stands still, so that rows are independent. Counts are whole numbers, and samples are keyed by their
// pair. The result is the same bits whatever the number of threads. What is given is w.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/augment/text_words.h"
#include "funicular/base/file.h"
#include "funicular/base/random.h"
#include "funicular/data/row_source.h"

namespace funicular::augment {

/// What decides the words' first values: counter (row, dimension) of layer 0; and, of layer 1 (contexts learn) and 2
/// (words learn), at which pair of a row an epoch begins: counter (row, all bits, epoch), and the samples: counter
/// (row, pair within the row, epoch * 2^16 + sample / 4).
inline constexpr Purpose kVectorTraining = Purpose::train_vectors;

struct VectorTrainingOptions {
  int64_t size = 100;            ///< numbers of a vector
  int64_t window = 10;           ///< words to either side, within a row
  int64_t min_count = 5;         ///< rarer words get no vector
  int64_t most_words = 100'000;  ///< only the most frequent ones
  int64_t negatives = 5;         ///< K, at most 1000
  int64_t epochs = 10;
  double learning_rate = 0.1;
  double most_counted = 10;  ///< x_max
  bool lower_case = true;
  WordRules words = {};  ///< how texts are cut into words
  uint64_t seed = 42;
};

struct TrainedVectors {
  std::vector<std::string> words;  ///< the most frequent first, equal ones in the order of their bytes
  std::vector<int64_t> counts;
  std::vector<float> vectors;  ///< [words, size]: w
  int64_t size = 0;
  int64_t pairs = 0;  ///< different pairs of words that stand near each other, both orders counted
  double loss = 0;    ///< the objective's mean over the pairs, in the last epoch
};

/// What is being done ("counting words", …) and which share of it is done. May throw to end it.
using TrainingProgress = std::function<void(const char* what, double share)>;

/// Throws InputError for options out of range, and where fewer than two words are frequent enough; RunError if the
/// training diverges (core/loss_watch.h).
TrainedVectors train_vectors(const data::RowSource& source, const VectorTrainingOptions& options,
                             const TrainingProgress& show = {});

/// As text, with 6 digits: GloVe's form, or word2vec's with `counts_first`. The file appears when it is complete;
/// `before_rename` gets it under the name that it has until then.
void write_vectors(const TrainedVectors& trained, const fs::path& file, bool counts_first,
                   const std::function<void(const fs::path& written)>& before_rename = {});

}  // namespace funicular::augment
