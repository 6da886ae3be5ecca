#pragma once
// Byte-pair encoding of characters as SentencePiece trains it (Gemma, Llama 2). Bytes stand for characters
// that the vocabulary lacks. Equal to `tokenizers`.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "funicular/text/bpe_merges.h"
#include "funicular/text/piece_model.h"

namespace funicular::text {

/// The fields of BPE in a tokenizer.json.
struct CharacterBpeOptions {
  std::string unknown_token = "";  ///< empty: characters that nothing stands for are left out
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
};

class CharacterBpe final : public PieceModel {
 public:
  /// `vocabulary[i]` is token i. Merges in the order of their ranks. Throws InputError (a token twice, invalid
  /// UTF-8, merges of tokens that do not exist, an unknown token that is none).
  CharacterBpe(std::vector<std::string> vocabulary, std::vector<Merge> merges, CharacterBpeOptions options);

  std::string_view type() const override { return "BPE"; }
  const std::vector<std::string>& vocabulary() const override { return vocabulary_; }
  int32_t id_of(std::string_view token) const override;
  int32_t unknown() const override { return unknown_; }
  bool byte_fallback() const override { return options_.byte_fallback; }
  void encode(std::string_view word, std::vector<WordPart>& out) const override;
  void encode_ids(std::string_view word, std::vector<int32_t>& ids) const override;
  bool splits_between(uint32_t before, std::string_view behind) const override;
  uint64_t fingerprint() const override;
  const CharacterBpeOptions& options() const { return options_; }
  const std::vector<Merge>& merges() const { return merges_.merges(); }

 private:
  int32_t id_of_character(uint32_t code, std::string_view character) const;
  void find_joins();
  bool may_join(uint32_t before, uint32_t behind) const;
  bool joins(uint32_t before, uint32_t behind) const;
  bool is_token(uint32_t code) const { return code < is_token_.size() && is_token_[code]; }
  struct Parts;
  void put_part(Parts& parts, std::string_view part, const char* word_end, std::vector<int32_t>& ids) const;
  void spell(std::string_view word, std::vector<Symbol>& symbols) const;
  bool append_bytes(std::string_view character, std::vector<Symbol>& symbols) const;
  void put_merged(std::vector<Symbol>& symbols, uint32_t begin, std::vector<WordPart>& out) const;

  std::vector<std::string> vocabulary_;
  CharacterBpeOptions options_;
  std::unordered_map<std::string_view, int32_t> ids_;
  MergeTable merges_;
  int32_t unknown_ = -1;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<int32_t> characters_;  ///< ids of the characters below U+10000, -1 for none
  std::vector<bool> is_token_;       ///< of the characters below U+10000
  /// Pairs of characters, the first in the upper half, sorted. A token that ends with the first one merges with a token
  /// that begins with the second one. A word can be merged in two parts between all other characters.
  std::vector<uint64_t> joins_;
  std::vector<uint64_t> join_bits_;  ///< a bit for the hash of each of these pairs
  /// Whether words may be merged in parts. If so, no merge has a token of a byte or the unknown one. Whole words are
  /// not looked up.
  bool in_parts_ = false;
  uint32_t serial_;  ///< tells the instances apart in the threads' caches
};

}  // namespace funicular::text
