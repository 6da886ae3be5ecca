#pragma once
// Texts whose words are given one by one, as data sets with a tag for each word have them.

#include <span>
#include <string_view>

#include "funicular/text/tokenizer.h"

namespace funicular::text {

/// Takes the next word off `rest`, in which blanks (U+0020, U+3000, tabs, line ends) separate words; empty at the end.
std::string_view next_given_word(std::string_view& rest);

/// Appends the tokens of each word. The first token of a word begins a word in TokenizedText::word_starts, and no
/// other one does. Byte-level words are taken with a blank before them, as transformers takes them with
/// is_split_into_words. A word that has no token, as one of control characters, gets the unknown token, so that each
/// word has at least one. Throws InputError where the vocabulary has no unknown token to give.
void tokenize_words(const Tokenizer& tokenizer, std::span<const std::string_view> words, TokenizedText& out);

}  // namespace funicular::text
