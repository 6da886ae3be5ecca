#pragma once
// How a pair of texts that is too long is cut, as Hugging Face `tokenizers` does it.

#include <cstdint>
#include <string>
#include <vector>

namespace funicular::text {

/// How a row that is too long is shortened; the names of Hugging Face.
enum class Truncation { longest_first, only_first, only_second };

/// Lengths of the two columns after truncation to `limit` tokens in total, without special tokens. The second
/// is 0 for single texts. Equal to Hugging Face `tokenizers`. Throws InputError if `limit` is negative, or if
/// only_first or only_second would leave nothing of its column.
struct PairLengths {
  int32_t first = 0, second = 0;
};
PairLengths truncate_pair(PairLengths lengths, int32_t limit, Truncation truncation);

/// As --truncation and config.json spell it: longest_first, only_first, only_second.
const std::vector<std::string>& truncation_names();
std::string truncation_name(Truncation truncation);
/// Throws InputError that lists the names; `origin` tells where the name was read.
Truncation parse_truncation(const std::string& name, const std::string& origin);

}  // namespace funicular::text
