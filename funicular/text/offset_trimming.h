#pragma once
// Offsets of tokens without the white space around them, as ByteLevel and RobertaProcessing of `tokenizers` trim them.

#include <string_view>

#include "funicular/text/tokenizer.h"

namespace funicular::text {

/// The range of a token without white space at its ends; `spelling` is in the characters of the model.
/// `keeps_prefix`: a single blank stays before the `first` token and at the beginning of the text, since it
/// may have been put there.
CharacterRange trimmed(CharacterRange range, std::string_view spelling, bool first, bool keeps_prefix);

}  // namespace funicular::text
