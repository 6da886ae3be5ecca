#pragma once
// Which folder a person means who names a model: a folder of a model, a run, or a model of the Hugging Face Hub.

#include <string>
#include <string_view>

#include "funicular/base/file.h"

namespace funicular::format {

/// Whether the text looks like the name of a model on a hub, "bert-base-uncased" or "org/name", and not like a path.
bool is_hub_name(std::string_view text);

/// Returns the folder of Hugging Face's local cache that holds models: HF_HUB_CACHE, HF_HOME/hub, or
/// ~/.cache/huggingface/hub. Empty if none of the variables is set.
fs::path hub_cache();

/// Returns the folder that holds the files of the model `name` in the local cache, at the branch "main". Empty if the cache
/// does not have the model.
fs::path hub_snapshot(std::string_view name);

/// Returns the model's folder that `given` stands for. If `given` is the folder RUN of a training, this is RUN/model.
/// If nothing of the name `given` exists and the local cache has the model, this is its folder in the cache. In all
/// other cases this is `given` itself.
fs::path find_model_folder(const fs::path& given);

}  // namespace funicular::format
