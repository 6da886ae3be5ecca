#pragma once
// A text split into words, which may be replaced, and the text between them.

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
  bool replaceable = false;  ///< has only letters, and is no stop word
};

struct DividedText {
  std::string text;
  std::vector<TextWord> words;  ///< as WordRules split them; by default a punctuation mark is a word, too
  std::vector<int32_t> pieces;  ///< pieces of all words, concatenated
  std::string_view word(size_t i) const {
    return std::string_view(text).substr(words[i].begin, words[i].end - words[i].begin);
  }
};

/// Words that are never replaced, in lower case.
using StopWords = std::unordered_set<std::string>;
/// English function words: the list of TinyBERT's published program.
const StopWords& english_stop_words();
/// Reads one word per line and skips empty lines. Throws InputError for a file that cannot be read or is not UTF-8.
StopWords read_stop_words(const fs::path& file);

/// How a text is split into words; by default as BERT's pre-tokenizer does.
struct WordRules {
  bool chinese_apart = true;  ///< each Chinese character is a word
  bool presegmented = false;  ///< a word is the text between blanks, including punctuation
  std::shared_ptr<const text::Segmenter> dictionary{};  ///< splits runs of Chinese characters by its words
  /// Throws InputError for rules that exclude each other.
  void check() const { check(presegmented, dictionary != nullptr); }
  /// Checks the same before the dictionary is read. Inline, as it is also used without LibTorch.
  static void check(bool presegmented, bool has_dictionary) {
    if (presegmented && has_dictionary)
      throw InputError(
          "usage",
          "--words presegmented takes the words that blanks separate, and --word-dictionary cuts words "
          "itself; give one of them");
  }
};

/// The words of a text, as written.
std::vector<std::string_view> words_of(std::string_view utf8, const WordRules& rules = {});

/// Whether the word has at least one letter (of any script), and only letters and their accents.
bool is_of_letters(std::string_view utf8);
/// Lower case, character by character.
std::string lower_cased(std::string_view utf8);

/// Splits texts for a WordPiece tokenizer. Keeps a reference to the tokenizer, which must outlive it.
class WordDivider {
 public:
  /// `published`: works like TinyBERT's program. The text becomes BERT's basic tokens with a blank between them, and
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
