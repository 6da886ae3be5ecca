#pragma once
// Training in folds: several models, each of which is measured on the part of the rows that it has not seen.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "funicular/task/finetune.h"

namespace funicular::task {

/// Files in the folder of such a run: the scores of the folds, and the answers to all rows. Each row is answered by the
/// model that has not seen it, in the order of the file.
inline constexpr const char *kFoldsFile = "folds.json", *kFoldAnswers = "predictions.jsonl";

struct FoldScores {
  std::map<std::string, double> values;  ///< by metric
  int64_t rows = 0;
};

struct FoldsResult {
  std::vector<FoldScores> folds;
  bool interrupted = false;  ///< the finished folds stay, and the same call resumes

  struct Spread {
    double mean = 0, deviation = 0;  ///< the standard deviation among the folds
  };
  /// Returns a spread for each metric that all folds have.
  std::map<std::string, Spread> spreads() const;
  OrderedJson json() const;
};

/// Trains on all folds but one, for each of them, without choosing a model by the held-out rows, and then measures it on
/// these. The run of a fold is OUTPUT/fold-N. A finished fold is not trained again. `key` tells all that decides the results:
/// throws InputError if the folder has folds of another key. Throws InputError for a task whose rows cannot be split.
/// Several ranks call it with the same options.
FoldsResult train_folds(const FinetuneOptions& options, int64_t count, const std::string& key);

}  // namespace funicular::task
