#pragma once
// Keys of a config.json that mean nothing to this program, and the ones that were perhaps meant.

#include <string>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/base/json.h"

namespace funicular::format {

/// One sentence for each key of `config`, an object, that is not known and stands in for one that the file does not
/// give: a misspelt one ("hiden_size"), a part of a name ("intermediate"), or the name of other families
/// ("n_layer"). If the file leaves out a size of the model, one more sentence names the sizes left out and all
/// other unknown keys. If label2id or num_labels differs from id2label, a sentence names the first difference. Keys that
/// published models carry and that change nothing are known. Empty where nothing is doubtful.
std::vector<std::string> doubtful_keys(const Json& config);

/// Warns of each. `model`: the folder or the config.json that was read.
void warn_of_doubtful_keys(const Json& config, const fs::path& model);

}  // namespace funicular::format
