#pragma once
// The tables of a byte-level BPE tokenizer (text/byte_bpe.h): vocabulary, merges, added tokens; immutable once made.

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "funicular/text/added_tokens.h"
#include "funicular/text/byte_bpe.h"
#include "funicular/text/word_table.h"

namespace funicular::text {

struct ByteBpeTables {
  ByteBpeTables(std::vector<std::string> tokens, std::vector<Merge> merge_list, ByteBpeOptions chosen,
                std::vector<AddedToken> extra, SequenceTemplate steps);
  ByteBpeTables(const ByteBpeTables&) = delete;
  int32_t id_of(std::string_view token) const;
  /// Gives the tokens of one word, which is given as the bytes of the text. The size of a symbol counts UTF-8
  /// bytes of the word in GPT-2's characters, as the offsets of `tokenizers` do.
  void spell(std::string_view word, std::vector<Symbol>& symbols, MergeScratch& scratch) const;

  ByteBpeOptions options;
  std::vector<AddedToken> added;        // by id
  std::vector<std::string> vocabulary;  // all tokens; the first model_size are the model's own
  size_t model_size;
  std::unordered_map<std::string_view, int32_t> ids;  // of the model's tokens
  MergeTable merges;
  std::array<int32_t, 256> byte_ids;  // -1 for bytes that the vocabulary lacks
  int32_t unknown_byte = -1;          // the token of such bytes; -1: they are left out
  AddedTokenMatcher raw, normalized;  // matched before and after normalisation
  std::vector<std::string>
      spelled;      // the model's tokens as bytes of text; empty: spells none, or is never made
  WordTable words;  // the words of up to 15 bytes in `spelled`
  std::unordered_map<std::string_view, int32_t> long_words;  // longer words, under ignore_merges
  /// Bit second % 64 of joins[first][second / 64] tells if a token that ends with byte `first` can merge with
  /// a token that begins with byte `second`. A word can be cut between two bytes that never join.
  std::array<std::array<uint64_t, 4>, 256> joins{};
  bool can_join(char first, char second) const {
    const auto byte = static_cast<uint8_t>(second);
    return joins[static_cast<uint8_t>(first)][byte / 64] >> (byte % 64) & 1;
  }
  /// The tokens of each three-byte character (most of Chinese, Japanese and Korean); -1 behind the last
  /// token. Empty if words are not read in parts.
  std::vector<std::array<int32_t, 3>> characters;
  static constexpr uint32_t first_of_three_bytes = 0x800, behind_three_bytes = 0x10000;
  SpecialTokens special;
  SequenceTemplate sequence;
  uint64_t fingerprint;
  uint32_t serial;  // tells the instances apart in the threads' caches

 private:
  std::vector<std::string> whole_words() const;
  void find_joins();
  void spell_characters();
};

}  // namespace funicular::text
