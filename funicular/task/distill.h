#pragma once
// Distillation: trains a small model on the outputs of a large one.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/bad_rows.h"
#include "funicular/objective/distillation.h"
#include "funicular/task/run.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// general (documents of a token store), intermediate (rows of a task) and prediction (its answers).
const std::vector<std::string>& distillation_stages();

struct DistillOptions : RunOptions {
  std::string stage{};  ///< one of distillation_stages()
  fs::path teacher{};   ///< the teacher's folder; not with `soft_columns`
  /// Instead of a teacher: columns of the rows' files with the probability of each class.
  std::vector<std::string> soft_columns{};
  std::string
      student{};  ///< a name of model::student_names() or of its sizes, a config.json, or a folder with weights
  std::string init_layers{};  ///< layers of the teacher that initialise the student; "": none

  fs::path data{}, eval_data{};                 ///< token stores of the stage general
  fs::path train_file{}, eval_file{};           ///< rows of the stages intermediate and prediction
  std::shared_ptr<const Task> task{};           ///< of these rows
  std::shared_ptr<format::BadRows> bad_rows{};  ///< null: a bad row is an error
  fs::path cache{};  ///< folder for the teacher's cached answers; empty: the teacher runs in each step

  /// The terms of the loss, see objective/distillation.h. `student`, `teacher`, `documents`, `sequence`, `layers`
  /// and `rows` are filled in.
  objective::DistillationOptions terms{};
  std::string layer_map = "uniform";  ///< see objective::make_layer_map
  std::string precision = "fp32",
              teacher_precision{};  ///< precision of the training, and of the teacher; "": the same

  std::optional<int64_t> max_length{};  ///< none: 128, or the models' longest
  std::string truncation = "longest_first";
};

struct DistillResult : RunResult {
  bool cache_interrupted =
      false;  ///< a signal came while the teacher ran: nothing is trained, and `cache` has its answers so far
};

/// Trains, and writes the run's folder as finetune() does. RUN/model is the best evaluated student. Throws InputError
/// for options, files or models that do not fit.
DistillResult distill(const DistillOptions& options);

}  // namespace funicular::task
