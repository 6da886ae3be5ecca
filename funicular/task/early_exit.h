#pragma once
// Early exit of models of classes: how exits are trained, what config.json keeps of them, and which threshold a user
// gets.

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

/// The file beside the model's weights that keeps the exits.
inline constexpr const char* kExitsFile = "exits.safetensors";

enum class ExitTraining {
  none,
  two_stage,          ///< after fine-tuning, the encoder frozen; exits learn the labels (DeeBERT)
  self_distillation,  ///< the same, and exits learn the distribution of the model's own classifier (FastBERT)
  joint               ///< with the encoder, from the labels
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

/// How `finetune` trains exits.
struct EarlyExitOptions {
  ExitTraining training = ExitTraining::none;
  ExitPooling pooling = ExitPooling::mean;
  bool exits_only = false;  ///< the model is fine-tuned already; only its exits learn
  bool wanted() const { return training != ExitTraining::none; }
  /// Whether a fine-tuning comes before the training of the exits.
  bool two_runs() const { return wanted() && training != ExitTraining::joint && !exits_only; }
};

/// Throws InputError unless the task gives one class per text.
void require_one_class(const Task& task, const char* option);

/// An exit behind each layer but the last, on the objective of a task of classes.
std::unique_ptr<objective::Objective> with_exits(std::unique_ptr<objective::Objective> classes,
                                                 const format::ModelConfig& config,
                                                 const EarlyExitOptions& options,
                                                 const objective::ClassLoss& loss = {});
/// The note on exits in config.json, before an evaluation adds its curves.
Json exits_note(const format::ModelConfig& config, const EarlyExitOptions& options);

// ---- a model with exits

/// A user's choice for a model with exits: at most one of the three.
struct ExitChoice {
  std::optional<double> threshold{};
  std::optional<double> speed{};     ///< the layers of the model over the mean layers of a row
  std::optional<double> accuracy{};  ///< at least, with the fewest layers
  model::ExitRule::Kind rule = model::ExitRule::Kind::entropy;

  bool given() const { return threshold || speed || accuracy; }
};

bool has_exits(const model::Pretrained& pretrained);
/// Reads the options of the exits' training from config.json. Exits of folders without a word of pooling read
/// the first token.
EarlyExitOptions exit_options(const model::Pretrained& pretrained);
/// The rule for this choice. Speed and accuracy come from the curves in config.json, of the evaluation that
/// chose the best exits. Throws InputError for a model without exits or without such a point.
model::ExitRule exit_rule(const model::Pretrained& pretrained, const ExitChoice& choice);
/// A model of with_exits() with all its weights, for use at this precision.
Model load_with_exits(const model::Pretrained& pretrained, const objective::Objective& objective,
                      const std::string& precision, at::Device device);

/// Metrics that also give "mean_layers", of the output `exit_layers` [S].
std::unique_ptr<Metrics> with_mean_layers(std::unique_ptr<Metrics> metrics);

}  // namespace funicular::task
