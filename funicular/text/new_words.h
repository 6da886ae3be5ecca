#pragma once
// New words for the vocabulary of a WordPiece tokenizer: which words can become tokens, and what follows.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/word_piece.h"

namespace funicular::text {

/// A word that becomes a token, and the tokens that the tokenizer cuts it into so far: at least one.
struct NewWord {
  std::string word;
  std::vector<int32_t> pieces;
};

struct NewWords {
  std::vector<NewWord> words;  ///< in the order of the file
  /// Words that cannot become tokens, where they may be left out: each as FILE:LINE, the word, and why.
  std::vector<std::string> left_out;
};

/// Throws InputError, with the reason, if words cannot be added to the tokenizer of `folder`.
const WordPiece& require_word_piece(const Tokenizer& tokenizer, const std::filesystem::path& folder);

/// Reads a list of words, one a line; what follows a tab in a line is not read, nor are empty lines. Throws InputError
/// naming FILE:LINE and the remedy for the first word that cannot become a token: one that is a token already, stands
/// in the list twice, holds a blank, is several words to the tokenizer, or is changed by its normaliser. With
/// `leave_out` such words are left out instead. Throws InputError where no word remains.
NewWords read_new_words(const WordPiece& tokenizer, const std::filesystem::path& file,
                        bool leave_out = false);

/// Why this word cannot become a token, and what to do; "" if it can.
std::string objection_to(const WordPiece& tokenizer, std::string_view word);

/// The tokenizer with `words` as tokens behind all that it has. They are pieces of words like the others: the longest
/// piece that a word begins with is taken first, so a word that begins with a new one is cut behind it, and all other
/// words are cut as before. Tokens that were added behind the vocabulary become part of it.
WordPiece with_new_words(const WordPiece& tokenizer, const std::vector<NewWord>& words);

/// The characters that stand in pieces behind their first character and are no piece themselves, each as UTF-8, in the
/// order of their codes. Where there are none, no word can become unknown by new words: whatever follows a new word is
/// spelled by single characters at worst.
std::vector<std::string> characters_without_piece(const WordPiece& tokenizer);

}  // namespace funicular::text
