#pragma once
// The file of a SentencePiece model (sentencepiece.bpe.model, spiece.model, spm.model): the few fields of its
// protocol buffer that a tokeniser needs.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace funicular::format {

struct SentencePieceModel {
  enum class Type : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class PieceType : uint8_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
  };
  struct Piece {
    std::string text;
    double score = 0;
    PieceType type = PieceType::normal;
  };

  std::vector<Piece> pieces;  ///< by their ids
  Type type = Type::unigram;
  int32_t unknown_id = 0;
  bool byte_fallback = false;
  // Settings that the classes of transformers replace by their own.
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool treat_whitespace_as_suffix = false;
  std::string character_map;  ///< empty: characters stay as they are
};

/// `bytes`: the file; `origin` names it in errors. Throws InputError for bytes that are no such model, saying where.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, const std::string& origin);

}  // namespace funicular::format
