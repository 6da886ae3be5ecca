#pragma once
// The pre-tokenizers that SentencePiece tokenisers have in a tokenizer.json, as consecutive steps.

#include <cstdint>
#include <string>
#include <vector>

#include "funicular/text/aligned_text.h"

namespace funicular::text {

/// The character that stands for a blank in SentencePiece's pieces.
inline constexpr const char* kBlankMark = "\xE2\x96\x81";  // U+2581

struct SplitterStep {
  enum Kind : uint8_t {
    white_space,  ///< WhitespaceSplit: between white space, which is dropped
    metaspace,    ///< blanks become `mark`
    punctuation,  ///< around punctuation
    literal,      ///< Split by a text
  };
  enum class Prepend : uint8_t { always, first, never };
  /// How separators are treated; the names are from tokenizer.json.
  enum class Behavior : uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

  Kind kind = white_space;
  std::string mark = kBlankMark;      ///< of metaspace
  Prepend prepend = Prepend::always;  ///< of metaspace: where a mark is put before a text that has none
  bool split = true;                  ///< of metaspace: before each mark
  std::string pattern = {};           ///< of literal; not empty
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< of literal: the text between matches separates

  bool operator==(const SplitterStep&) const = default;
};

/// Returns the words that the steps make of a text, in order; none is empty. `text.origin` may be empty
/// unless a step has Prepend::first, which asks whether a text begins at the original's first character.
std::vector<AlignedText> split_words(const std::vector<SplitterStep>& steps, AlignedText text);

}  // namespace funicular::text
