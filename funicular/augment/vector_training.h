#pragma once
// Trains small word vectors on a corpus, so that multi-piece words can be varied without a downloaded file.
//
// The objective is skip-gram with negative samples, on counted pairs. Source: Mikolov, Sutskever, Chen, Corrado,
// Dean, "Distributed Representations of Words and Phrases and their Compositionality", 2013, equation 4. It is the
// sum over pairs of words i, j of f(X_ij) (-log s(w_i · c_j) - sum over K samples n of log s(-w_i · c_n)). Here s is
// the logistic function. X_ij is the sum of 1 / distance over all occurrences of j in a window around i. Samples are
// drawn by the words' counts to the power 0.75. f(x) = min(1, (x / x_max)^0.75) limits the weight of frequent pairs.
// Source: Pennington, Socher, Manning, "GloVe: Global Vectors for Word Representation", 2014, equation 9. GloVe's own
// objective ignores pairs that never occur, but in a small corpus they tell the most.
//
// In the published programs, threads update both sides without locks, so that no two runs are equal. Here the words'
// side and the contexts' side take turns. One side learns by stochastic gradient descent with AdaGrad (one sum per
// row), while its counterpart is fixed. Thus rows are independent. Counts are whole numbers, and samples are keyed by
// their pair. The result is bit-identical for any number of threads. The output is w.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "funicular/augment/text_words.h"
#include "funicular/base/file.h"
#include "funicular/base/random.h"
#include "funicular/data/row_source.h"

namespace funicular::augment {

/// Key of all random choices. Layer 0 with counter (row, dimension): the words' initial values. Layers 1 (contexts
/// learn) and 2 (words learn) have two kinds of counters. Counter (row, 2^32 - 1, epoch): the pair at which a row
/// begins an epoch. Counter (row, pair within the row, epoch * 2^16 + sample / 4): the samples.
inline constexpr Purpose kVectorTraining = Purpose::train_vectors;

struct VectorTrainingOptions {
  int64_t size = 100;            ///< dimensions of a vector
  int64_t window = 10;           ///< words to either side, within a row
  int64_t min_count = 5;         ///< rarer words get no vector
  int64_t most_words = 100'000;  ///< keeps only the most frequent words
  int64_t negatives = 5;         ///< K, at most 1000
  int64_t epochs = 10;
  double learning_rate = 0.1;
  double most_counted = 10;  ///< x_max
  bool lower_case = true;
  WordRules words = {};  ///< how texts are cut into words
  uint64_t seed = 42;
};

struct TrainedVectors {
  std::vector<std::string> words;  ///< the most frequent first; ties in the order of their bytes
  std::vector<int64_t> counts;
  std::vector<float> vectors;  ///< [words, size]: w
  int64_t size = 0;
  int64_t pairs = 0;  ///< distinct pairs of words that occur near each other; both orders count
  double loss = 0;    ///< the objective's mean over the pairs in the last epoch
};

/// Called with the current task ("counting words", …) and the share of it that is done. May throw to stop the
/// training.
using TrainingProgress = std::function<void(const char* what, double share)>;

/// Throws InputError for options out of range, and if fewer than two words are frequent enough; RunError if the
/// training diverges (core/loss_watch.h).
TrainedVectors train_vectors(const data::RowSource& source, const VectorTrainingOptions& options,
                             const TrainingProgress& show = {});

/// Writes text with 6 digits, in GloVe's format, or in word2vec's with `counts_first`. The file gets its name once it
/// is complete; `before_rename` is called with its temporary name before.
void write_vectors(const TrainedVectors& trained, const fs::path& file, bool counts_first,
                   const std::function<void(const fs::path& written)>& before_rename = {});

}  // namespace funicular::augment
