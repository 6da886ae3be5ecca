#pragma once
// The fields of transformers' TrainingArguments, and what funicular has in their place.

#include <string>
#include <string_view>

namespace funicular::cli {

/// Returns what takes the place of a field that is no option here; empty for a name that is no such field. `name` with
/// dashes.
std::string_view answer_to_training_argument(std::string_view name);

/// Returns the page docs/reference/training_arguments.md. It declares the options of finetune, so it needs the
/// library of commands_library.h.
std::string training_arguments_page();

}  // namespace funicular::cli
