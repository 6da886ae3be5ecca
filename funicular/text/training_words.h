#pragma once
// The words that a vocabulary is trained on: texts after the normaliser and the splitter of the tokeniser.

#include <string>
#include <string_view>

#include "funicular/text/piece_tokenizer.h"
#include "funicular/text/word_counts.h"
#include "funicular/text/word_piece.h"

namespace funicular::text {

enum class VocabularyKind : uint8_t { word_piece, bpe, byte_bpe, unigram };

/// The steps that a text takes before it is cut into pieces.
struct TrainingRules {
  VocabularyKind kind = VocabularyKind::word_piece;
  WordPieceOptions word_piece = {};  ///< of word_piece
  bool compose = true;               ///< of byte_bpe: NFC
  PieceRules pieces = {};            ///< of bpe and unigram
};

/// Counts the words of texts; one for each thread. Special tokens are text like any other, as in `tokenizers`.
class TrainingWords {
 public:
  explicit TrainingWords(TrainingRules rules);
  /// Counts the words of a text. Invalid UTF-8 reads as U+FFFD.
  void add(std::string_view utf8);
  /// Gives what was counted since the last call.
  WordCounts take();

 private:
  void count_chunks();
  void cut(std::string_view chunk, uint64_t times);
  void cut_word_piece(std::string_view chunk, uint64_t times);
  void cut_byte_bpe(std::string_view chunk, uint64_t times);
  void cut_pieces(std::string_view chunk, uint64_t times);

  TrainingRules rules_;
  WordCounts chunks_, words_;
  std::string text_;  // kept between calls
};

/// Cuts a word of `bpe` or `unigram` for training: a part is letters, digits or punctuation, with the mark of a blank
/// before them. `at` (< end) moves behind the part. "▁said," has two parts, as SentencePiece trains no piece of several
/// scripts. The tokeniser need not cut there, because no piece crosses.
std::string_view next_part_of_one_kind(const char*& at, const char* end);

}  // namespace funicular::text
