#pragma once
// Cross-validation: trains several models and evaluates each on the rows that it has not seen.

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
  std::map<std::string, double> values;         ///< by metric
  std::map<std::string, double> constant = {};  ///< of the best constant answer on the fold's training rows
  std::string answer = {};                      ///< that answer, for people; "": none
  int64_t rows = 0;
};

struct FoldsResult {
  std::vector<FoldScores> folds;
  bool interrupted = false;  ///< the finished folds stay, and the same call resumes

  struct Spread {
    double mean = 0, deviation = 0;  ///< the standard deviation over the folds
  };
  using Scores = std::map<std::string, double> FoldScores::*;
  /// Returns a spread for each metric that all folds have.
  std::map<std::string, Spread> spreads(Scores scores = &FoldScores::values) const;
  /// {"folds": …, METRIC: {"mean": …, "deviation": …, "values": […]}, …, "baseline": {"answers": […], METRIC: …}}
  OrderedJson json() const;

 private:
  void add_spreads(OrderedJson& json, Scores scores) const;
};

/// For each fold, trains on all further folds and evaluates on this fold, which is never used to choose a model. The
/// run of a fold is OUTPUT/fold-N. A finished fold is not trained again. `key` describes everything that affects the
/// results. Throws InputError if the folder has folds with another key, and for a task whose rows cannot be split.
/// All ranks must call it with the same options.
FoldsResult train_folds(const FinetuneOptions& options, int64_t count, const std::string& key);

}  // namespace funicular::task
