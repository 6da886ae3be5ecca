#include "funicular/text/truncation.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "funicular/base/error.h"

namespace funicular::text {
namespace {

// Longest first, in closed form: the longer column is cut until both are equal, then both are cut. If the
// limit is odd, the odd token goes to the column that was longer, or to the second one if they were equal.
PairLengths longest_first(PairLengths lengths, int32_t limit) {
  int32_t shorter = std::min(lengths.first, lengths.second), longer = std::max(limit - shorter, shorter);
  if (shorter + longer > limit) {
    shorter = limit / 2;
    longer = limit - shorter;
  }
  return lengths.first > lengths.second ? PairLengths{longer, shorter} : PairLengths{shorter, longer};
}

}  // namespace

PairLengths truncate_pair(PairLengths lengths, int32_t limit, Truncation truncation) {
  const int32_t excess = lengths.first + lengths.second - limit;
  if (excess <= 0) return lengths;
  if (limit == 0) return {};
  if (limit < 0)
    throw InputError("tokenizer", "rows of {} tokens without the special ones: expected 0 or more", limit);
  if (truncation == Truncation::longest_first) return longest_first(lengths, limit);
  const bool only_first = truncation == Truncation::only_first;
  int32_t& column = only_first ? lengths.first : lengths.second;
  if (column <= excess)  // Hugging Face refuses to empty a column, too
    throw InputError("tokenizer",
                     "cannot shorten a row by {} tokens with truncation {}: that column has {} tokens; use "
                     "longest_first or a larger --max-length",
                     excess, only_first ? "only_first" : "only_second", column);
  column -= excess;
  return lengths;
}

const std::vector<std::string>& truncation_names() {
  static const std::vector<std::string> names{"longest_first", "only_first", "only_second"};
  return names;
}

std::string truncation_name(Truncation truncation) {
  return truncation_names()[static_cast<size_t>(truncation)];
}

Truncation parse_truncation(const std::string& name, const std::string& origin) {
  const auto& names = truncation_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw InputError("config", "{}: truncation is \"{}\"; expected one of {}", origin, name,
                     fmt::join(names, ", "));
  return static_cast<Truncation>(found - names.begin());
}

}  // namespace funicular::text
