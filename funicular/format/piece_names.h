#pragma once
// The names of the special tokens of a tokeniser of pieces, as its files give them.

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "funicular/format/named_tokens.h"
#include "funicular/text/piece_tokenizer.h"

namespace funicular::format {

/// The roles with their names in the rules.
std::array<std::pair<const char*, std::string*>, 5> piece_roles(text::PieceRules& rules);
/// Takes what the files name, and whether the model reads token types.
void read_piece_names(const NamedTokens& named, text::PieceRules& rules);
/// Fills in the names of BERT if `tokens` has them and lacks the present names.
void guess_piece_names(const std::vector<std::string>& tokens, text::PieceRules& rules);

}  // namespace funicular::format
