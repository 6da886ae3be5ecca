#pragma once
// Keys of a config.json that mean nothing to this program, and the ones that were perhaps meant.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::format {

/// Returns sentences about keys of `config`, an object, that are probably mistakes. A sentence names each unknown
/// key if the file lacks the key that was probably meant. The unknown key may be misspelt ("hiden_size"), a part of
/// a name ("intermediate"), or the name that other families use ("n_layer"). If the file leaves out a size of the
/// model, one more sentence names the missing sizes and all remaining unknown keys. If label2id or num_labels does
/// not fit id2label, or id2label repeats a name, one sentence names the first problem. Keys that published models
/// carry without effect are known. Empty if nothing is doubtful.
std::vector<std::string> doubtful_keys(const Json& config);

/// Logs a warning for each sentence. `model`: the folder or the config.json that was read.
void warn_of_doubtful_keys(const Json& config, const fs::path& model);

}  // namespace funicular::format
