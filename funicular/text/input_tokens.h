#pragma once
// Which tokens of a vocabulary a text can have.

#include <cstdint>
#include <vector>

#include "funicular/text/word_piece.h"

namespace funicular::text {

/// The ids, ascending, of the tokens that some text gives: no special tokens, none that are kept for later
/// ([unused1]), none that the normaliser's rules keep from a text (capitals where texts are lower-cased, "##字" where
/// each ideograph is a word). Decided by tokenising each token, alone or behind the beginning of a word.
std::vector<int32_t> input_tokens(const WordPiece& tokenizer);

}  // namespace funicular::text
