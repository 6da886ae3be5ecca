#pragma once
// The pre-tokenizers of a tokenizer.json that tokenisers of SentencePiece have, as steps that follow each other.

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
  /// What becomes of what separates, with the names of tokenizer.json.
  enum class Behavior : uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

  Kind kind = white_space;
  std::string mark = kBlankMark;      ///< of metaspace
  Prepend prepend = Prepend::always;  ///< of metaspace: where a mark is put before a text that has none
  bool split = true;                  ///< of metaspace: before each mark
  std::string pattern = {};           ///< of literal; not empty
  Behavior behavior = Behavior::isolated;
  bool invert = false;  ///< of literal: what is between the texts separates

  bool operator==(const SplitterStep&) const = default;
};

/// The words of a text by these steps, in their order; none is empty. `text.origin` may be empty unless a step has
/// Prepend::first, which asks whether a text begins at the original's first character.
std::vector<AlignedText> split_words(const std::vector<SplitterStep>& steps, AlignedText text);

}  // namespace funicular::text
