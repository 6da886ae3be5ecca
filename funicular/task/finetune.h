#pragma once
// Fine-tunes a pre-trained model on labelled rows.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/bad_rows.h"
#include "funicular/task/early_exit.h"
#include "funicular/task/run.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// Weight of a row (for tags: of a word) in training, by class.
struct ClassWeights {
  bool balanced = false;             ///< all classes have the same total weight
  std::vector<double> weights = {};  ///< one per class, in the order of their names; empty: 1 each
};

/// The options of finetune(). task/run.h has the options of any run.
struct FinetuneOptions : RunOptions {
  fs::path model{};                         ///< folder of the pre-trained model
  fs::path train_file{};                    ///< the rows to learn from
  fs::path eval_file{};                     ///< the rows to evaluate on; empty: no evaluation
  std::shared_ptr<const Task> task{};       ///< see find_task
  std::shared_ptr<const Task> eval_task{};  ///< reads eval_file; null: `task`
  /// Without eval_file: the share of train_file's rows that is held out for evaluation; 0: none.
  double eval_fraction = 0;
  std::shared_ptr<format::BadRows> bad_rows{};  ///< null: a bad row is an error
  /// The teacher for the task "vectors": an embedder's folder, or a table of vectors (.npy), one per training row.
  fs::path teacher{};

  std::optional<int64_t> max_length{};       ///< none: 128, or the model's longest
  std::string truncation = "longest_first";  ///< how to shorten a pair longer than max_length
  ClassWeights class_weights{};              ///< weight of a row by class
  double soft_temperature = 1;               ///< for rows with shares, see objective::SoftLabels
  double label_smoothing =
      0;  ///< in training, the share of a row's weight that is spread equally over all classes
  EmbeddingOptions embedding{};           ///< loss and poolings of the tasks on vectors
  RankingChoice ranking{.chosen = true};  ///< loss of the rerankers
  EarlyExitOptions early_exit{};          ///< classifiers behind each layer
};

/// Subfolder of a run that trains exits after fine-tuning: the run of the fine-tuning.
inline constexpr const char* kEncoderRun = "encoder";

/// Trains, and writes the run's folder. RUN/model is the best evaluated model as a Hugging Face folder, with a note
/// for evaluate and predict. RUN/data has the token stores of the rows. An interrupted run resumes from its last
/// checkpoint. All ranks must call it with the same options. Throws InputError for options, files or a model that do
/// not fit.
RunResult finetune(const FinetuneOptions& options);

}  // namespace funicular::task
