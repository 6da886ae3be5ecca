#pragma once
// Texts that stand for a missing value, as pandas and Excel write them.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "funicular/data/sample.h"
#include "funicular/text/tokenizer.h"

namespace funicular::data {

/// The texts that pandas writes for a missing value after astype(str), and Excel for a failed formula. Excel takes a text that begins
/// with a dash for a formula.
inline constexpr std::array<std::string_view, 13> kMissingValues = {
    "nan",   "NaN",     "<NA>",   "NaT",   "#N/A", "#NAME?", "#VALUE!",
    "#REF!", "#DIV/0!", "#NULL!", "#NUM!", "None", "null"};
inline constexpr size_t kMissingLabels = 11;  ///< the first ones; the others are common names of a class

/// Recognises rows one of whose texts is nothing but such a value.
class MissingTexts {
 public:
  explicit MissingTexts(const text::Tokenizer& tokenizer);
  bool in(const Sample& row) const;

 private:
  std::vector<std::vector<int32_t>> values_;  ///< as tokens
};

}  // namespace funicular::data
