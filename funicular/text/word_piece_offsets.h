#pragma once
// Which characters of a text each WordPiece token comes from, as Hugging Face `tokenizers` counts them.

#include <string_view>
#include <vector>

#include "funicular/text/aligned_text.h"

namespace funicular::text {

struct WordPieceTables;

/// One text with its tokens.
class WordPieceOffsets {
 public:
  WordPieceOffsets(const WordPieceTables& tables, TokenizedText& out, std::vector<CharacterRange>& offsets)
      : tables_(tables), out_(out), offsets_(offsets) {}
  void read(std::string_view utf8);

 private:
  AlignedText normalized(const AlignedText& original) const;
  void read_segment(const AlignedText& segment);
  void read_word(const AlignedText& segment, std::string_view word);
  void put(int32_t id, bool starts_word, std::string_view spelling, CharacterRange range);

  const WordPieceTables& tables_;
  TokenizedText& out_;
  std::vector<CharacterRange>& offsets_;
};

}  // namespace funicular::text
