#pragma once
// Tables of a tokeniser of pieces (text/piece_tokenizer.h); immutable once made.

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "funicular/text/added_tokens.h"
#include "funicular/text/piece_tokenizer.h"

namespace funicular::text {

struct PieceTables {
  PieceTables(std::unique_ptr<const PieceModel> pieces, PieceRules chosen, std::vector<AddedToken> extra,
              SequenceTemplate steps);
  PieceTables(const PieceTables&) = delete;
  int32_t id_of(std::string_view token) const;
  /// Whether no step splits words.
  bool splits_nowhere() const { return splits_nowhere_; }
  /// Whether token `id` begins a word, where nothing splits words.
  bool begins_word(int32_t id) const { return begins_word_[static_cast<size_t>(id)]; }

  std::unique_ptr<const PieceModel> model;
  PieceRules rules;
  std::vector<AddedToken> added;        // by id
  std::vector<std::string> vocabulary;  // all tokens; the first model_size are the model's own
  size_t model_size;
  std::vector<bool> is_added;         // by id
  AddedTokenMatcher raw, normalized;  // matched before and after normalisation
  SpecialTokens special;
  SequenceTemplate sequence;
  uint64_t fingerprint;
  uint32_t serial;  // tells the instances apart in the threads' caches

 private:
  bool splits_nowhere_;
  std::vector<bool> begins_word_;  // by id
};

/// Cuts a text at single blanks so that each part is tokenised for itself. The characters around such a blank form
/// no cluster with it and do not become blanks. Only the rules of XLM-R, bge-m3, ALBERT, DeBERTa, Gemma, Llama and
/// their kin are cut: usable() is false for every other order of steps.
class ChunkRules {
 public:
  explicit ChunkRules(const PieceTables& tables);

  bool usable() const { return kind_ != Kind::none; }
  /// Whether a chunk at the beginning of a text has the tokens that it has behind a blank.
  bool first_is_like_others() const { return first_is_like_others_; }
  /// Whether a chunk behind a blank at the beginning of a text has the tokens that it has behind other blanks.
  bool first_blank_is_like_others() const { return first_blank_is_like_others_; }
  /// The blank that ends the chunk which begins at `at` (< end), or `end`.
  const char* end_of_chunk(const char* at, const char* end) const;
  /// Whether a chunk may begin with the character at `at`.
  bool begins(const char* at, const char* end) const;
  /// Whether visible ASCII between single blanks is a chunk, whose word is the mark and the chunk as it stands. A blank
  /// behind the character joined() ends no chunk.
  bool cuts_ascii() const { return cuts_ascii_; }
  char joined() const { return joined_; }
  /// Makes the word of a chunk behind a blank, or of the first chunk of a text. False if some character is not
  /// normalised for itself or may split words.
  bool make_word(std::string_view chunk, bool is_first, std::string& word) const;
  /// The normaliser for all but the first chunk of a text.
  const std::vector<NormalizerStep>& later_steps() const { return later_steps_; }

 private:
  enum class Kind : uint8_t { none, words, merges };
  Kind kind_of() const;
  bool ends(const char* begin, const char* blank) const;
  bool is_plain(uint32_t code) const;
  void find_unsafe();
  void find_unchanged_ascii();
  void find_simple();
  void find_ascii_ends();
  bool append_simple(std::string_view chunk, std::string& word) const;

  const PieceTables& tables_;
  Kind kind_;
  bool first_is_like_others_ = false, first_blank_is_like_others_ = false;
  bool replaces_compatibility_ = false, cuts_ascii_ = false;
  std::vector<NormalizerStep> later_steps_;
  std::unordered_set<uint32_t> unsafe_;  ///< characters that may become blanks or nothing
  std::array<bool, 128> ascii_begins_{}, ascii_ends_{};
  std::array<bool, 128> ascii_unchanged_{};  ///< whether no step changes the character among others of ASCII
  char joined_ = ' ';
  /// How the characters below U+10000 are normalised, whatever other simple characters are beside them.
  enum class Simple : uint8_t { no, kept, replaced };
  std::vector<Simple> simple_;
  const CharacterMap* map_ = nullptr;  ///< that replaces them
};

}  // namespace funicular::text
