#pragma once
// Options that Hugging Face's scripts have and funicular answers in another way.

#include <string_view>

namespace funicular::cli {

/// What takes the place of an option of transformers' TrainingArguments or example scripts, in one sentence; empty
/// for a name that is not known. `name` without dashes in front, with dashes within.
std::string_view answer_to_foreign_option(std::string_view name);

}  // namespace funicular::cli
