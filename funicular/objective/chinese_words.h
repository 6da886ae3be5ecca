#pragma once
// Words in Chinese text whose tokens are single characters.

#include <memory>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/objective/masking.h"
#include "funicular/text/segmenter.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

/// Whether the tokenizer makes each ideograph a word, so that a dictionary has to join them to words. Byte-level BPE
/// does not, nor does WordPiece with tokenize_chinese_chars false. Both split words at blanks, so a whole Chinese
/// sentence is one word.
bool splits_ideographs(const text::Tokenizer& tokenizer);

/// Warns if the tokenizer takes whole Chinese sentences as words: it does not split ideographs, and its vocabulary
/// was made from Chinese text. At least 5 % of such a vocabulary begin with an ideograph; other vocabularies have
/// only a few.
void warn_of_sentences_as_words(const text::Tokenizer& tokenizer);

class ChineseWords {
 public:
  /// Reads the dictionary, see text::Segmenter. Throws InputError for a tokenizer that does not split ideographs.
  ChineseWords(const text::Tokenizer& tokenizer, const fs::path& dictionary);

  /// Sets `word_starts` in runs of single-ideograph tokens to the words that the dictionary finds. Runs end where
  /// rows do. Other tokens, such as English words, keep their word starts. If `word_starts` is empty (unknown), each
  /// other token becomes a word.
  void mark(const MaskView& view, std::vector<uint8_t>& word_starts) const;

 private:
  text::Segmenter segmenter_;
  std::vector<uint32_t> ideographs_;  ///< by token id; 0: the token is no single ideograph
};

}  // namespace funicular::objective
