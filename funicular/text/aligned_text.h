#pragma once
// Normalised text that knows which characters of the original it comes from, as Hugging Face `tokenizers` counts them.

#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/nfc.h"
#include "funicular/text/tokenizer.h"

namespace funicular::text {

struct AlignedText {
  std::string text;
  std::vector<CharacterRange> origin;  ///< for each byte of `text`

  /// The original itself; invalid UTF-8 is read as U+FFFD.
  static AlignedText original(std::string_view utf8);
  /// The text after a normalisation that gives these characters.
  AlignedText replaced(const std::vector<NormalizedCharacter>& characters) const;
  /// `piece` is a part of `text`, and not empty for range_of.
  AlignedText part(std::string_view piece) const;
  CharacterRange range_of(std::string_view piece) const;
  void append(uint32_t code, CharacterRange range);
};

}  // namespace funicular::text
