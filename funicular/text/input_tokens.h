#pragma once
// Which tokens of a vocabulary a text can have.

#include <cstdint>
#include <vector>

#include "funicular/text/tokenizer.h"

namespace funicular::text {

/// Returns the ids of the tokens that some text can give, ascending. Special tokens are left out, and so are
/// tokens reserved for later ([unused1]). Tokens that the normaliser never lets through are left out, too:
/// capitals if it lower-cases, "##字" if each ideograph is a word.
/// WordPiece: a token counts if its own text gives it, alone or behind the beginning of a word ("##").
/// Byte-level BPE: a token counts if its own text gives it, alone or behind a letter or digit. Tokens that
/// are not whole characters have no text. A single byte counts if UTF-8 has it (not C0, C1, F5 … FF). A
/// longer part of characters counts if a merge makes it.
/// PieceTokenizer: each token of the model counts.
std::vector<int32_t> input_tokens(const Tokenizer& tokenizer);

}  // namespace funicular::text
