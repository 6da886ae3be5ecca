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

/// Reads a list of words, one per line. Empty lines are skipped, and the text behind a tab is ignored. Throws
/// InputError, naming FILE:LINE and the remedy, for the first word that cannot become a token (see
/// objection_to()) or stands in the list twice. With `leave_out` it leaves out such words instead. Throws
/// InputError if no word remains.
NewWords read_new_words(const WordPiece& tokenizer, const std::filesystem::path& file,
                        bool leave_out = false);

/// Returns why this word cannot become a token, and what to do; "" if it can. A word cannot if it is a token
/// already, holds a blank, or is longer than the tokenizer's limit. It also cannot if the tokenizer reads it
/// as several words or none, or if the normaliser changes it.
std::string objection_to(const WordPiece& tokenizer, std::string_view word);

/// Returns the tokenizer with `words` appended to its vocabulary. WordPiece takes the longest piece that a
/// word begins with. A word that begins with a new word is therefore cut behind it; all other words are cut
/// as before. Added tokens behind the old vocabulary become part of it.
WordPiece with_new_words(const WordPiece& tokenizer, const std::vector<NewWord>& words);

/// Returns the characters that occur in pieces behind the beginning of a word but have no piece ("##c") of
/// their own. Each is given as UTF-8, in the order of their codes. If there are none, new words make no word
/// unknown: single characters can spell whatever follows a new word.
std::vector<std::string> characters_without_piece(const WordPiece& tokenizer);

}  // namespace funicular::text
