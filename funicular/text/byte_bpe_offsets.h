#pragma once
// Which characters of a text each token came of, as Hugging Face `tokenizers` counts them.

#include <string>
#include <string_view>
#include <vector>

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
  /// Text with, for each of its bytes, the characters of the original that it came of.
  struct Aligned {
    std::string text;
    std::vector<CharacterRange> origin;
    Aligned part(std::string_view piece) const;  ///< a part of `text`
    CharacterRange range_of(std::string_view piece) const;
  };
  static Aligned composed(const Aligned& original);
  void read_segment(Aligned segment);
  void read_word(const Aligned& segment, std::string_view word);
  void put(int32_t id, bool starts_word, std::string_view spelling, CharacterRange range);

  const ByteBpeTables& tables_;
  TokenizedText& out_;
  std::vector<CharacterRange>& offsets_;
  size_t first_;
  std::vector<Symbol> symbols_;
  MergeScratch merging_;
};

}  // namespace funicular::text
