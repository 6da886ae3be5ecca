#pragma once
// Words that users know from elsewhere, as options of Hugging Face's scripts, and what funicular has in their place.

#include <string>
#include <string_view>

namespace funicular::cli {

/// The replacement, in one sentence, of an option of transformers' TrainingArguments or example scripts;
/// empty for an unknown name. `name` without dashes in front, with dashes within.
std::string_view answer_to_foreign_option(std::string_view name);

/// Answers likewise to a command ("embed"), to an option's value ("mnli" of --task), and to an action ("train" of
/// vocabulary). Capitals and underscores make no difference.
std::string_view answer_to_foreign_command(std::string_view name);
std::string_view answer_to_foreign_value(std::string_view option, std::string_view value);

/// `name` in small letters, with dashes for underscores.
std::string foreign_spelling(std::string_view name);

}  // namespace funicular::cli
