#pragma once
// Texts that denote a missing value, as pandas and Excel write them.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "funicular/data/sample.h"
#include "funicular/text/tokenizer.h"

namespace funicular::data {

/// The texts that pandas writes for a missing value after astype(str), and Excel for a failed formula. (Excel reads a
/// text that begins with a dash as a formula.)
inline constexpr std::array<std::string_view, 13> kMissingValues = {
    "nan",   "NaN",     "<NA>",   "NaT",   "#N/A", "#NAME?", "#VALUE!",
    "#REF!", "#DIV/0!", "#NULL!", "#NUM!", "None", "null"};
inline constexpr size_t kMissingLabels =
    11;  ///< the number of leading entries that denote a missing label; "None" and "null" may name a class

/// Recognises rows with a text that is exactly a missing value.
class MissingTexts {
 public:
  explicit MissingTexts(const text::Tokenizer& tokenizer);
  bool in(const Sample& row) const;

 private:
  std::vector<std::vector<int32_t>> values_;  ///< as tokens
};

}  // namespace funicular::data
