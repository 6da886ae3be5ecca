#pragma once
// Early exit for models with classes: the training of exits, their note in config.json, and the choice of a
// threshold.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "funicular/core/metrics.h"
#include "funicular/core/model.h"
#include "funicular/model/early_exit.h"
#include "funicular/model/pretrained.h"
#include "funicular/objective/class_loss.h"
#include "funicular/objective/objective.h"
#include "funicular/task/task.h"

namespace funicular::task {

/// The file of the exits' weights, beside the model's weights.
inline constexpr const char* kExitsFile = "exits.safetensors";

enum class ExitTraining {
  none,
  two_stage,          ///< after fine-tuning, encoder frozen; exits learn the labels (DeeBERT)
  self_distillation,  ///< after fine-tuning, encoder frozen; exits learn the own classifier's distribution (FastBERT)
  joint               ///< together with the encoder; exits learn the labels
};
/// The values of --early-exit, in the order of ExitTraining.
const std::vector<std::string>& exit_training_names();

/// Input of an exit.
enum class ExitPooling {
  mean,  ///< the mean of all its tokens
  first  ///< its first token, as DeeBERT and FastBERT do
};
/// The values of --exit-pooling, in the order of ExitPooling.
const std::vector<std::string>& exit_pooling_names();

/// Options of the training of exits in `finetune`.
struct EarlyExitOptions {
  ExitTraining training = ExitTraining::none;
  ExitPooling pooling = ExitPooling::mean;
  bool exits_only = false;  ///< the model is already fine-tuned; only its exits are trained
  bool wanted() const { return training != ExitTraining::none; }
  /// Whether fine-tuning precedes the training of the exits.
  bool two_runs() const { return wanted() && training != ExitTraining::joint && !exits_only; }
};

/// Throws InputError unless the task gives one class per text.
void require_one_class(const Task& task, const char* option);

/// Adds an exit behind each layer except the last to the objective of a task with classes.
std::unique_ptr<objective::Objective> with_exits(std::unique_ptr<objective::Objective> classes,
                                                 const format::ModelConfig& config,
                                                 const EarlyExitOptions& options,
                                                 const objective::ClassLoss& loss = {});
/// The note on exits in config.json, before an evaluation adds its curves.
Json exits_note(const format::ModelConfig& config, const EarlyExitOptions& options);

// ---- a model with exits

/// A user's choice for a model with exits; at most one of the three is given.
struct ExitChoice {
  std::optional<double> threshold{};
  std::optional<double> speed{};     ///< ratio of the model's layers to the mean layers per row
  std::optional<double> accuracy{};  ///< least accuracy, reached with the fewest layers
  model::ExitRule::Kind rule = model::ExitRule::Kind::entropy;

  bool given() const { return threshold || speed || accuracy; }
};

bool has_exits(const model::Pretrained& pretrained);
/// Reads the options of the exits' training from config.json. Exits of folders that do not note a pooling read the
/// first token.
EarlyExitOptions exit_options(const model::Pretrained& pretrained);
/// Returns the exit rule for this choice. Speed and accuracy refer to the curves in config.json, from the evaluation
/// that chose the best exits. Throws InputError for a model without exits, and if no point meets the choice.
model::ExitRule exit_rule(const model::Pretrained& pretrained, const ExitChoice& choice);
/// Loads a model of with_exits() with all its weights, for inference in this precision.
Model load_with_exits(const model::Pretrained& pretrained, const objective::Objective& objective,
                      const std::string& precision, at::Device device);

/// Metrics that also report "mean_layers", from the output `exit_layers` [S].
std::unique_ptr<Metrics> with_mean_layers(std::unique_ptr<Metrics> metrics);

}  // namespace funicular::task
