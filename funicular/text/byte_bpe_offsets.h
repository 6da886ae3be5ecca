#pragma once
// Which characters of a text each token came of, as Hugging Face `tokenizers` counts them.

#include <string_view>
#include <vector>

#include "funicular/text/aligned_text.h"
#include "funicular/text/byte_bpe.h"

namespace funicular::text {

struct ByteBpeTables;

/// One text with its tokens.
class ByteBpeOffsets {
 public:
  ByteBpeOffsets(const ByteBpeTables& tables, TokenizedText& out, std::vector<CharacterRange>& offsets)
      : tables_(tables), out_(out), offsets_(offsets), first_(offsets.size()) {}
  void read(std::string_view utf8);

 private:
  void read_segment(AlignedText segment);
  void read_word(const AlignedText& segment, std::string_view word);
  void put(int32_t id, bool starts_word, std::string_view spelling, CharacterRange range);

  const ByteBpeTables& tables_;
  TokenizedText& out_;
  std::vector<CharacterRange>& offsets_;
  size_t first_;
  std::vector<Symbol> symbols_;
  MergeScratch merging_;
};

}  // namespace funicular::text
