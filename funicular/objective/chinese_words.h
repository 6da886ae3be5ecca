#pragma once
// Words in Chinese text whose tokens are single characters.

#include <memory>
#include <vector>

#include "funicular/base/file.h"
#include "funicular/objective/masking.h"
#include "funicular/text/segmenter.h"
#include "funicular/text/tokenizer.h"

namespace funicular::objective {

class ChineseWords {
 public:
  /// Reads the dictionary, see text::Segmenter.
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
