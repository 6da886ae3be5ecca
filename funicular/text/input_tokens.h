#pragma once
// Which tokens of a vocabulary a text can have.

#include <cstdint>
#include <vector>

#include "funicular/text/tokenizer.h"

namespace funicular::text {

/// The ids, ascending, of the tokens that some text gives: no special tokens, none that are kept for later
/// ([unused1]), none that the normaliser's rules keep from a text (capitals where texts are lower-cased, "##字" where
/// each ideograph is a word). Of WordPiece it is decided by tokenising each token, alone or behind the beginning of a
/// word. Of byte-level BPE those that their own text gives, alone or behind a letter or digit; of parts of characters, which
/// are no text, the bytes that UTF-8 has (not C0, C1, F5 … FF) and what merges make of these.
std::vector<int32_t> input_tokens(const Tokenizer& tokenizer);

}  // namespace funicular::text
