#pragma once
// Actions of a WordPiece tokeniser at each code point, computed once for its options and vocabulary.

#include <cstdint>
#include <vector>

#include "funicular/text/normalizer.h"
#include "funicular/text/trie.h"

namespace funicular::text {

/// One entry: what happens at a code point, and a value whose meaning depends on it.
struct CharacterAction {
  enum Kind : uint32_t {
    letter,    ///< the code point `value` is appended to the word
    drop,      ///< nothing
    space,     ///< the word ends
    isolated,  ///< the word ends, and token `value` follows
    complex,   ///< normalise it, and look at each part
  };
  uint32_t bits = 0;
  CharacterAction() = default;
  CharacterAction(Kind kind, uint32_t value) : bits(value << 3 | kind) {}
  Kind kind() const { return static_cast<Kind>(bits & 7); }
  uint32_t value() const { return bits >> 3; }
};

class CharacterTable {
 public:
  /// `pieces` gives the ids of isolated characters. An isolated character that it lacks gets the id
  /// `unknown`.
  CharacterTable(NormalizerRules rules, const Trie& pieces, int32_t unknown);

  CharacterAction operator[](uint32_t code) const {
    return code < entries_.size() ? entries_[code] : make(code);
  }
  const NormalizerRules& rules() const { return rules_; }
  /// Whether ASCII is split as AsciiWords splits it. Letters and digits must be kept, in lower case (`lower`)
  /// or as they are. Blanks, tabs and line ends must be spaces, and all other visible signs isolated.
  bool ascii_words(bool lower) const;

 private:
  CharacterAction make(uint32_t code) const;

  NormalizerRules rules_;
  const Trie* pieces_;
  int32_t unknown_;
  std::vector<CharacterAction> entries_;  // for code points below U+30000; the rest is computed on demand
};

}  // namespace funicular::text
