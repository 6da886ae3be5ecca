#include "funicular/text/character_table.h"

#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
CharacterTable::CharacterTable(NormalizerRules rules, const Trie& pieces, int32_t unknown)
    : rules_(rules), pieces_(&pieces), unknown_(unknown) {
  constexpr uint32_t tabulated = 0x30000;
  std::vector<CharacterAction> entries(tabulated);
  for (uint32_t code = 0; code < tabulated; ++code) entries[code] = make(code);
  entries_ = std::move(entries);
}

CharacterAction CharacterTable::make(uint32_t code) const {
  using Action = CharacterAction;
  const uint8_t flags = flags_of(code);
  if (rules_.clean && (flags & unicode::dropped)) return {Action::drop, 0};
  if (rules_.clean && (flags & unicode::space)) return {Action::space, 0};
  CodePoints visible;
  for (const uint32_t part : rules_.strip ? decompose(code) : CodePoints(code)) {
    if (rules_.strip) {
      const bool stripped = flags_of(part) & unicode::mark;
      // Order matters: a combining character that is kept, or a stripped one that ends a run.
      if (stripped == (combining_rank(part) == 0)) return {Action::complex, code};
      if (stripped) continue;
    }
    const CodePoints lower = rules_.lower ? lower_case(part) : CodePoints(part);
    if (visible.size + lower.size > 1)
      return {Action::complex, code};  // none splits words: see the tables' script
    visible = lower;
  }
  if (visible.size == 0) return {Action::drop, 0};
  const uint32_t character = visible.codes[0];
  const uint8_t kind = flags_of(character);
  if (kind & unicode::white) return {Action::space, 0};
  if (!(kind & unicode::punctuation) && !(rules_.chinese && (flags & unicode::chinese)))
    return {Action::letter, character};
  char bytes[4];
  const int32_t node = pieces_->find({bytes, static_cast<size_t>(put_code_point(character, bytes) - bytes)});
  const int32_t id = node == Trie::none ? Trie::none : pieces_->id(node);
  return {Action::isolated, static_cast<uint32_t>(id == Trie::none ? unknown_ : id)};
}

bool CharacterTable::ascii_words(bool lower) const {
  for (uint32_t code = 0; code < 128; ++code) {
    const CharacterAction action = entries_[code];
    const bool upper = code >= 'A' && code <= 'Z';
    if (upper || (code >= 'a' && code <= 'z') || (code >= '0' && code <= '9')) {
      if (action.kind() != CharacterAction::letter || action.value() != (upper && lower ? code | 0x20 : code))
        return false;
    } else if (code == ' ' || code == '\t' || code == '\n' || code == '\r') {
      if (action.kind() != CharacterAction::space) return false;
    } else if (code > ' ' && code < 0x7F && action.kind() != CharacterAction::isolated) {
      return false;
    }
  }
  return true;
}

}  // namespace funicular::text
