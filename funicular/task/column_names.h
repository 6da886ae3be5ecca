#pragma once
// Common names of label and text columns, for guesses about a table (table_guess.h).

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace funicular::task {

using Names = std::vector<std::string_view>;

// In the form that plain_name() gives. The first name of kLabels and of kTexts comes before all others.
extern const Names kLabels, kTexts;
/// Names of columns that often accompany the text.
extern const Names kShortTexts;
/// Names of the two columns of a pair of texts.
extern const std::vector<std::pair<std::string_view, std::string_view>> kPairs;

/// Returns the letters and digits in lower case: "Review_Text" is "reviewtext".
std::string plain_name(std::string_view name);
/// Returns whether `names` has the plain form of `name`.
bool is_among(const Names& names, std::string_view name);
/// Returns whether `name` is one of kTexts or kPairs.
bool is_text_name(std::string_view name);

}  // namespace funicular::task
