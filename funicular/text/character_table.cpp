#include "funicular/text/character_table.h"

#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

// Where order within a run of combining characters matters: such characters, and dropped ones that end a run.
bool touches_order(uint32_t code) {
  for (const uint32_t part : decompose(code)) {
    const bool stripped = flags_of(part) & unicode::mark;
    if (stripped == (combining_rank(part) == 0)) return true;
  }
  return false;
}

}  // namespace

CharacterTable::CharacterTable(NormalizerRules rules, const Trie& pieces, int32_t unknown)
    : rules_(rules), pieces_(&pieces), unknown_(unknown) {
  constexpr uint32_t tabulated = 0x30000;
  std::vector<CharacterAction> entries(tabulated);
  for (uint32_t code = 0; code < tabulated; ++code) entries[code] = make(code);
  entries_ = std::move(entries);
}

CharacterAction CharacterTable::make(uint32_t code) const {
  using Action = CharacterAction;
  std::string text;
  Normalizer(rules_, text).push(code);
  if (rules_.strip && touches_order(code) && !(rules_.clean && (flags_of(code) & unicode::dropped)))
    return {Action::complex, code};
  uint32_t visible = 0;
  int count = 0, white = 0;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    const uint32_t part = next_code_point(at, end);
    if (flags_of(part) & unicode::white) ++white;
    else visible = part, ++count;
  }
  if (count == 0) return {white ? Action::space : Action::drop, 0};
  const bool punctuation = flags_of(visible) & unicode::punctuation;
  if (count > 1) return {Action::complex, code};  // none of them splits words: checked when the tables are made
  if (!punctuation && white == 0) return {Action::letter, visible};
  char bytes[4];
  const int32_t node = pieces_->find({bytes, static_cast<size_t>(put_code_point(visible, bytes) - bytes)});
  const int32_t id = node == Trie::none ? Trie::none : pieces_->id(node);
  return {Action::isolated, static_cast<uint32_t>(id == Trie::none ? unknown_ : id)};
}

bool CharacterTable::ascii_words(bool lower) const {
  for (uint32_t code = 0; code < 128; ++code) {
    const bool upper = code >= 'A' && code <= 'Z';
    if (!upper && !(code >= 'a' && code <= 'z') && !(code >= '0' && code <= '9')) continue;
    const CharacterAction action = entries_[code];
    if (action.kind() != CharacterAction::letter || action.value() != (upper && lower ? code | 0x20 : code))
      return false;
  }
  return true;
}

}  // namespace funicular::text
