#pragma once
// Words in Chinese text whose tokens are single characters.

#include <memory>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/objective/masking.h"
#include "funicular/text/segmenter.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

/// Whether the tokenizer makes a word of each ideograph, so that words are to be made of them. Byte-level BPE does not,
/// nor WordPiece with tokenize_chinese_chars false: what stands between blanks is one word there, of Chinese a sentence.
bool splits_ideographs(const text::Tokenizer& tokenizer);

/// Warns where whole Chinese sentences are words of the tokenizer: it does not split ideographs, and its vocabulary was
/// made of Chinese text. Text of other languages in other vocabularies has a few ideographs, too.
void warn_of_sentences_as_words(const text::Tokenizer& tokenizer);

class ChineseWords {
 public:
  /// Reads the dictionary, see text::Segmenter. Throws InputError for a tokenizer that does not split ideographs.
  ChineseWords(const text::Tokenizer& tokenizer, const fs::path& dictionary);

  /// Within runs of tokens that are one ideograph each, leaves in `word_starts` only those of the dictionary's words.
  /// Runs end where rows do. All other tokens, of English words in between too, stay as they are. Where no word starts are known, those of the
  /// other tokens are all 1.
  void mark(const MaskView& view, std::vector<uint8_t>& word_starts) const;

 private:
  text::Segmenter segmenter_;
  std::vector<uint32_t> ideographs_;  ///< by token id; 0: the token is none
};

}  // namespace funicular::objective
