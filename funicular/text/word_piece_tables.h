#pragma once
// Tables of a WordPiece tokeniser; immutable once made.

#include <memory>
#include <string>
#include <vector>

#include "funicular/text/added_tokens.h"
#include "funicular/text/character_table.h"
#include "funicular/text/trie.h"
#include "funicular/text/word_piece.h"
#include "funicular/text/word_table.h"

namespace funicular::text {

struct WordPieceTables {
  WordPieceTables(std::vector<std::string> tokens, WordPieceOptions chosen, std::vector<AddedToken> extra);
  WordPieceTables(const WordPieceTables&) = delete;  // characters point to pieces
  int32_t id_of(std::string_view token) const;
  /// The pieces of one normalised word, longest first; the unknown token if it cannot be spelled.
  void spell(std::string_view word, std::vector<int32_t>& ids) const;

  WordPieceOptions options;
  std::vector<AddedToken> added;        // by id
  std::vector<std::string> vocabulary;  // all tokens; the first model_size are the model's own
  size_t model_size;
  Trie pieces;
  int32_t continuing;  // node behind the continuing prefix, or none
  int32_t unknown;
  NormalizerRules rules;
  CharacterTable characters;
  AddedTokenMatcher raw, normalized;  // matched before and after normalisation
  std::unique_ptr<const CharacterTable>
      plain_characters;  // for text that is normalised already; if it is needed
  WordTable words;
  SpecialTokens special;
  SequenceTemplate sequence;
  uint64_t fingerprint;
  uint32_t serial;  // tells the instances apart in the threads' caches
  bool ascii_words, ascii_lower;
};

}  // namespace funicular::text
