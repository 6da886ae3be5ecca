#pragma once
// The rows of a proof, the objective that makes batches of them, and the model.

#include <memory>

#include "funicular/data/sample.h"
#include "funicular/format/model_config.h"
#include "funicular/objective/distillation.h"
#include "funicular/objective/objective.h"
#include "funicular/objective/ranking_losses.h"
#include "funicular/objective/soft_labels.h"
#include "funicular/objective/vector_losses.h"
#include "funicular/prove/proof.h"
#include "funicular/text/tokenizer.h"

namespace funicular::prove {

/// Keeps the objects alive that the objective refers to.
struct ProofText {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::shared_ptr<const data::Dataset> rows;
  std::unique_ptr<objective::Objective> objective;
};

/// The configuration of the task's model, or of the small default model.
format::ModelConfig config_of(const ProofTask& task);
/// The configuration of ELECTRA's generator beside a discriminator of the given one.
format::ModelConfig generator_of(const format::ModelConfig& discriminator);
/// The terms of the task's distillation; the teacher has twice the layers and random weights.
objective::DistillationOptions distillation_of(const ProofTask& task, const format::ModelConfig& student);
/// The settings for soft labels, if the task's rows have shares, and the label smoothing that goes with them.
objective::SoftLabels soft_labels_of(const ProofTask& task);
inline constexpr double kSoftSmoothing = 0.1;
/// The loss of vectors that the task learns, if it has one.
objective::VectorLossOptions vector_loss_of(const ProofTask& task, const format::ModelConfig& config);
/// The loss of ProofTask::ranks().
objective::RankingLossOptions ranking_loss_of_proof();

/// Throws InputError for a token store that the task cannot read.
ProofText open_text(const ProofTask& task, const format::ModelConfig& config);
/// A model with the weights of the task's folder. Without a folder all weights are random, including vectors, so that
/// a missing bias or norm shows in the result.
Model build_model(const ProofTask& task, const objective::Objective& objective,
                  const format::ModelConfig& config, bool repeatable = false);

}  // namespace funicular::prove
