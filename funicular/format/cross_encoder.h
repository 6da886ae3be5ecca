#pragma once
// Folders of sentence-transformers' CrossEncoder: a classifier of one label, and what makes its logit a score.

#include <optional>
#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/format/model_config.h"

namespace funicular::format {

enum class ScoreActivation { sigmoid, identity };
/// In the order of ScoreActivation.
const std::vector<std::string>& score_activation_names();

/// The activation that config.json names: `sentence_transformers.activation_fn`, or the key of versions before 4. None: it
/// names none. Throws InputError for an activation of another kind.
std::optional<ScoreActivation> score_activation(const ModelConfig& config);

/// Writes both keys, which versions 2 to 6 read.
void set_score_activation(ModelConfig& config, ScoreActivation activation);

/// Takes the activation from config_sentence_transformers.json, where version 5.4 and later keep it, if the folder is a
/// CrossEncoder's and config.json names none.
void read_cross_encoder(ModelConfig& config, const fs::path& folder);

}  // namespace funicular::format
