#pragma once
// Which characters of a text each token of a PieceTokenizer comes from, as Hugging Face `tokenizers` counts them.

#include <string_view>
#include <vector>

#include "funicular/text/aligned_text.h"
#include "funicular/text/piece_model.h"

namespace funicular::text {

struct PieceTables;

/// One text with its tokens.
class PieceOffsets {
 public:
  PieceOffsets(const PieceTables& tables, TokenizedText& out, std::vector<CharacterRange>& offsets)
      : tables_(tables), out_(out), offsets_(offsets), first_(offsets.size()) {}
  void read(std::string_view utf8);

 private:
  void read_segment(AlignedText segment);
  void put(int32_t id, bool starts_word, std::string_view spelling, CharacterRange range);

  const PieceTables& tables_;
  TokenizedText& out_;
  std::vector<CharacterRange>& offsets_;
  size_t first_;
  std::vector<WordPart> parts_;
};

}  // namespace funicular::text
