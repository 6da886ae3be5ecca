#pragma once
// A text cut into words that may be replaced and what stands between them.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/text/segmenter.h"
#include "funicular/text/tokenizer.h"
#include "funicular/text/word_piece.h"

namespace funicular::augment {

struct TextWord {
  size_t begin = 0, end = 0;  ///< bytes of the text
  int32_t first_piece = 0, pieces = 0;
  bool replaceable = false;  ///< of letters alone, and no stop word
};

struct DividedText {
  std::string text;
  std::vector<TextWord> words;  ///< as WordRules cut them; by default a mark of punctuation is one, too
  std::vector<int32_t> pieces;  ///< of all words, end to end
  std::string_view word(size_t i) const {
    return std::string_view(text).substr(words[i].begin, words[i].end - words[i].begin);
  }
};

/// Words that stay, in lower case.
using StopWords = std::unordered_set<std::string>;
/// English words of grammar rather than of meaning, the list of TinyBERT's published program.
const StopWords& english_stop_words();
/// A word a line; empty lines are left out. Throws InputError for a file that cannot be read or is not UTF-8.
StopWords read_stop_words(const fs::path& file);

/// How a text is cut into words. By default as BERT's pre-tokenizer cuts it.
struct WordRules {
  bool chinese_apart = true;  ///< each Chinese character is a word
  bool presegmented = false;  ///< a word is what stands between blanks, its marks of punctuation included
  std::shared_ptr<const text::Segmenter> dictionary{};  ///< cuts runs of Chinese characters into its words
  /// Throws InputError for rules that exclude each other.
  void check() const { check(presegmented, dictionary != nullptr); }
  /// Does the same before the dictionary is read. Inline, for the part of the program that is without LibTorch.
  static void check(bool presegmented, bool has_dictionary) {
    if (presegmented && has_dictionary)
      throw InputError(
          "usage",
          "--words presegmented takes the words that blanks separate, and --word-dictionary cuts words "
          "itself; give one of them");
  }
};

/// The words of a text, as they are written.
std::vector<std::string_view> words_of(std::string_view utf8, const WordRules& rules = {});

/// Whether there are letters (of any script) and nothing but letters and their accents.
bool is_of_letters(std::string_view utf8);
/// Lower case, character by character.
std::string lower_cased(std::string_view utf8);

/// Cuts texts for a WordPiece tokenizer. Refers to the tokenizer, which must outlive it.
class WordDivider {
 public:
  /// `published`: as TinyBERT's program does it. The text becomes BERT's basic tokens with a blank between them, and
  /// only words of the letters a to z are replaceable. Otherwise the text stays as it is. `rules`: the tokenizer
  /// decides chinese_apart. Throws InputError for a tokenizer that is no WordPiece, and for rules that do not fit it.
  WordDivider(const text::Tokenizer& tokenizer, StopWords stop_words, bool published, WordRules rules = {});
  DividedText divide(std::string_view utf8) const;

 private:
  void add_word(DividedText& divided, size_t begin, size_t end, text::TokenizedText& scratch) const;
  bool is_replaceable(std::string_view word) const;
  const text::WordPiece& tokenizer_;
  StopWords stop_words_;
  bool published_;
  WordRules rules_;
};

}  // namespace funicular::augment
