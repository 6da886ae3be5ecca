#pragma once
// BERT's normalisation, as Hugging Face's BertNormalizer does it: clean, blanks around CJK, strip accents,
// lower-case. The code applies the rules to one code point after another; WordPiece uses tables
// (character_table.h) instead.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "funicular/text/word_piece.h"

namespace funicular::text {

/// unicode::Flag bits of a code point.
uint8_t flags_of(uint32_t code);
/// Rank of the canonical combining class; 0 for starters.
uint8_t combining_rank(uint32_t code);

/// Up to four code points.
struct CodePoints {
  std::array<uint32_t, 4> codes{};
  int size = 0;
  CodePoints() = default;
  explicit CodePoints(uint32_t code) : codes{code}, size(1) {}
  void push(uint32_t code) { codes[size++] = code; }
  const uint32_t* begin() const { return codes.data(); }
  const uint32_t* end() const { return codes.data() + size; }
};

/// Full canonical decomposition (Unicode's NFD of one code point), Hangul included.
CodePoints decompose(uint32_t code);
/// Full lower case without context: no final sigma.
CodePoints lower_case(uint32_t code);

/// Options that normalising text needs.
struct NormalizerRules {
  bool clean = false, chinese = false, strip = false, lower = false;
  explicit NormalizerRules(const WordPieceOptions& options);
  NormalizerRules() = default;
};

/// Appends normalised text to a string. Combining characters that accent stripping keeps are sorted into
/// canonical order within a run. A run ends at each starter, even if that starter is then stripped.
class Normalizer {
 public:
  Normalizer(NormalizerRules rules, std::string& out) : rules_(rules), out_(out), run_begin_(out.size()) {}
  void push(uint32_t code);
  /// Text that was appended before now takes no part in reordering.
  void start_run() { run_begin_ = out_.size(); }

 private:
  void push_kept(uint32_t code);
  void put_lower(uint32_t code);
  void insert_combining(uint32_t code, uint8_t rank);

  NormalizerRules rules_;
  std::string& out_;
  size_t run_begin_;
};

/// Whole texts; invalid UTF-8 reads as U+FFFD.
std::string normalize(std::string_view utf8, NormalizerRules rules);

}  // namespace funicular::text
