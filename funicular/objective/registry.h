#pragma once
// The objectives of pre-training, by name.

#include <memory>
#include <string>
#include <vector>

#include "funicular/objective/electra.h"
#include "funicular/objective/objective.h"
#include "funicular/objective/token_masker.h"

namespace funicular::objective {

/// The values of `pretrain --objective`.
const std::vector<std::string>& pretraining_names();
/// `electra`: read only by the objective of this name. Throws InputError for another name.
std::unique_ptr<Objective> make_pretraining(const std::string& name, const text::Tokenizer& tokenizer,
                                            const MaskedLmOptions& options,
                                            const ElectraOptions& electra = {});

}  // namespace funicular::objective
