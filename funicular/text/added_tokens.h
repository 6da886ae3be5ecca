#pragma once
// Finds added tokens such as "[MASK]" in text, by the rules of Hugging Face's AddedVocabulary. The longest
// token at the leftmost position wins; then single_word, lstrip and rstrip apply.

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "funicular/text/tokenizer.h"
#include "funicular/text/trie.h"

namespace funicular::text {

/// Sorts tokens by id.
std::vector<AddedToken> by_id(std::vector<AddedToken> added);
/// Returns the vocabulary, followed by the added tokens that it lacks. `added` must be sorted by id. Throws
/// InputError for tokens that occur twice, are empty or not valid UTF-8, have another token's id, or leave a
/// gap.
std::vector<std::string> with_added_tokens(std::vector<std::string> vocabulary,
                                           const std::vector<AddedToken>& added);

class AddedTokenMatcher {
 public:
  using Normalize = std::function<std::string(std::string_view)>;

  AddedTokenMatcher() = default;
  /// Looks for `patterns[i]` in place of `tokens[i].content`.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);
  /// Returns a matcher of the tokens that are found in raw text.
  static AddedTokenMatcher raw(const std::vector<AddedToken>& added);
  /// Returns a matcher of the tokens that are found in normalised text. Throws InputError if normalising
  /// leaves nothing of a token or makes two tokens equal.
  static AddedTokenMatcher normalized(const std::vector<AddedToken>& added, const Normalize& normalize);

  bool empty() const { return tokens_.empty(); }

  /// Splits a text at its added tokens, in order. Calls piece(std::string_view) for the text between tokens
  /// (never empty), and token(int32_t id, std::string_view text) for each token. The text of a token includes
  /// the white space that it takes in.
  template <class Piece, class Token>
  void split(std::string_view text, Piece piece, Token token) const {
    size_t done = 0;
    for (Match match; (match = next(text, match.search_from, done)).token != nullptr; done = match.end) {
      if (done < match.begin) piece(text.substr(done, match.begin - done));
      token(match.token->id, text.substr(match.begin, match.end - match.begin));
    }
    if (done < text.size()) piece(text.substr(done));
  }

 private:
  struct Match {
    const AddedToken* token = nullptr;
    size_t begin = 0, end = 0;  ///< with the white space that the token takes in
    size_t search_from = 0;     ///< end of the pattern itself
  };
  Match next(std::string_view text, size_t from, size_t done) const;
  size_t next_candidate(std::string_view text, size_t from) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;
  std::array<bool, 256> first_bytes_{};
  int only_first_byte_ = -1;  ///< if all patterns begin with the same byte
};

}  // namespace funicular::text
