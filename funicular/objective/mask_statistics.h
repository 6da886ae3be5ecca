#pragma once
// Counts over masked sequences (rates, lengths, whole words) that show a user whether the masking is as intended.

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "funicular/base/json.h"
#include "funicular/objective/masking_options.h"

namespace funicular::objective {

class MaskStatistics {
 public:
  void add(const MaskedSequence& sequence);

  /// Keys: "sequences", "tokens", "hidden_tokens", "hidden_share"; "shown": {"mask": {"tokens", "share"}, "random",
  /// "similar", "kept"}; "units": {"number", "mean_words", "mean_tokens", "by_words": {"1": {"number", "share"}, …}};
  /// "without_similar": {"words", "share"}, with the share of the words that were to become a similar one;
  /// "all_words_hidden": {"sequences", "share"}; "no_word_hidden", alike. A share of nothing is 0.
  Json json() const;
  /// The counts as some lines of text for people.
  std::string text() const;

 private:
  double shown(Shown how) const { return shown_[static_cast<size_t>(how)]; }

  double sequences_ = 0, tokens_ = 0, hidden_ = 0, units_ = 0, unit_words_ = 0;
  std::array<double, 4> shown_{};
  std::map<int64_t, double> units_by_words_;
  double similar_wanted_ = 0, without_similar_ = 0, hidden_whole_ = 0, hidden_none_ = 0;
};

/// Writes a masked sequence as a line: masked units as {original|shown}, words separated by blanks, special tokens
/// around and between the texts. With `colours` (for terminals) the original is green, and the shown text is red
/// ([MASK]), yellow (random), blue (similar) or grey (the same).
std::string masked_text(const MaskedSequence& sequence, const text::Tokenizer& tokenizer, bool colours);
/// A line that explains the colours, each written in its own colour.
std::string colour_legend();

}  // namespace funicular::objective
