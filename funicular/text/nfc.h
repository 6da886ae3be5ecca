#pragma once
// Normal forms of Unicode (Standard Annex #15), as Hugging Face `tokenizers` does it, with its
// account of which characters came of which.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace funicular::text {

/// One character of normalised text.
struct NormalizedCharacter {
  uint32_t code = 0;
  /// 0: it takes the place of the next character of the original; -n: of the next 1 + n; 1: it is inserted
  /// behind the one before.
  int32_t change = 0;
};

/// Whether no character of valid UTF-8 can change or be changed: the text is its own composition. May be
/// false for such a text.
bool is_surely_composed(std::string_view utf8);

/// Whether compatibility characters are replaced: "①" becomes 1. Forms KC and KD replace them.
enum class Compatibility { keep, replace };

/// The characters of valid UTF-8 in form C or KC.
std::vector<NormalizedCharacter> compose_characters(std::string_view utf8,
                                                    Compatibility compatibility = Compatibility::keep);
/// The characters of valid UTF-8 in form D or KD: decomposed, in canonical order.
std::vector<NormalizedCharacter> decompose_characters(std::string_view utf8,
                                                      Compatibility compatibility = Compatibility::keep);
std::string compose(std::string_view utf8);
/// Whether a code point's form KD has a blank.
bool has_blank_form(uint32_t code);

}  // namespace funicular::text
