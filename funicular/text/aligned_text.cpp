#include "funicular/text/aligned_text.h"

#include <algorithm>

#include "funicular/text/utf8.h"

namespace funicular::text {

AlignedText AlignedText::original(std::string_view utf8) {
  AlignedText whole{to_valid_utf8(utf8), {}};
  int32_t character = 0;
  for (const char *at = whole.text.data(), *end = at + whole.text.size(); at < end; ++character) {
    next_code_point(at, end);
    whole.origin.resize(static_cast<size_t>(at - whole.text.data()), {character, character + 1});
  }
  return whole;
}

// A character takes the range of the one whose place it takes, and an inserted one that of the character
// before it. The places are counted off one by one, although the marks have changed their order.
AlignedText AlignedText::replaced(const std::vector<NormalizedCharacter>& characters) const {
  AlignedText result;
  const char *at = text.data(), *end = at + text.size();
  for (const NormalizedCharacter& character : characters) {
    const auto place = static_cast<size_t>(at - text.data());
    CharacterRange range;
    if (character.change <= 0)
      range = origin[std::min(place, origin.size() - 1)];
    else if (place > 0)
      range = origin[place - 1];
    for (int32_t taken = character.change; taken <= 0 && at < end; ++taken) next_code_point(at, end);
    result.append(character.code, range);
  }
  return result;
}

AlignedText AlignedText::part(std::string_view piece) const {
  const auto begin = origin.begin() + (piece.data() - text.data());
  return {std::string(piece), {begin, begin + static_cast<ptrdiff_t>(piece.size())}};
}

CharacterRange AlignedText::range_of(std::string_view piece) const {
  const auto begin = static_cast<size_t>(piece.data() - text.data());
  return {origin[begin].begin, origin[begin + piece.size() - 1].end};
}

void AlignedText::append(uint32_t code, CharacterRange range) {
  append_code_point(code, text);
  origin.resize(text.size(), range);
}

}  // namespace funicular::text
