#pragma once
// Normal forms of Unicode (Standard Annex #15), as Hugging Face `tokenizers` computes them. They also tell
// which original characters each character comes from.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace funicular::text {

/// One character of normalised text.
struct NormalizedCharacter {
  uint32_t code = 0;
  /// 0: it replaces the next character of the original. -n: it replaces the next 1 + n. 1: it is inserted
  /// behind the character before.
  int32_t change = 0;
};

/// True if no character of the valid UTF-8 can change in NFC. May be false for a text that is in NFC.
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
