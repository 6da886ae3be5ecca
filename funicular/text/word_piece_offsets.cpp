#include "funicular/text/word_piece_offsets.h"

#include <algorithm>

#include "funicular/text/normalizer.h"
#include "funicular/text/offset_trimming.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"
#include "funicular/text/word_piece_tables.h"

namespace funicular::text {
namespace {

/// Calls use(code, range) for each character.
template <class Use>
void for_each_character(const AlignedText& text, Use use) {
  for (const char *at = text.text.data(), *end = at + text.text.size(); at < end;) {
    const CharacterRange range = text.origin[static_cast<size_t>(at - text.text.data())];
    const uint32_t code = next_code_point(at, end);
    use(code, range);
  }
}

AlignedText cleaned(const AlignedText& original, NormalizerRules rules) {
  AlignedText result;
  for_each_character(original, [&](uint32_t code, CharacterRange range) {
    const uint8_t flags = flags_of(code);
    if (rules.clean && (flags & unicode::dropped)) return;
    if (rules.clean && (flags & unicode::space)) code = ' ';
    const bool chinese = rules.chinese && (flags & unicode::chinese);
    if (chinese) result.append(' ', range);
    result.append(code, range);
    if (chinese) result.append(' ', range);
  });
  return result;
}

}  // namespace

// The order of BertNormalizer: clean, blanks around CJK, strip accents, lower-case.
AlignedText WordPieceOffsets::normalized(const AlignedText& original) const {
  const NormalizerRules& rules = tables_.rules;
  AlignedText text = cleaned(original, rules);
  if (rules.strip) text = text.replaced(decompose_characters(text.text));
  AlignedText result;
  for_each_character(text, [&](uint32_t code, CharacterRange range) {
    if (rules.strip && (flags_of(code) & unicode::mark)) return;
    for (const uint32_t part : rules.lower ? lower_case(code) : CodePoints(code)) result.append(part, range);
  });
  return result;
}

void WordPieceOffsets::read(std::string_view utf8) {
  const AlignedText whole = AlignedText::original(utf8);
  tables_.raw.split(
      whole.text,
      [&](std::string_view piece) {
        const AlignedText text = normalized(whole.part(piece));
        tables_.normalized.split(
            text.text, [&](std::string_view segment) { read_segment(text.part(segment)); },
            [&](int32_t id, std::string_view token) { put(id, true, token, text.range_of(token)); });
      },
      [&](int32_t id, std::string_view token) { put(id, true, token, whole.range_of(token)); });
}

void WordPieceOffsets::read_segment(const AlignedText& segment) {
  const char *at = segment.text.data(), *const end = at + segment.text.size();
  const char* word = at;
  const auto end_word = [&](const char* behind) {
    if (word < behind) read_word(segment, {word, static_cast<size_t>(behind - word)});
  };
  while (at < end) {
    const char* const begin = at;
    const uint8_t flags = flags_of(next_code_point(at, end));
    if (!(flags & (unicode::white | unicode::punctuation))) continue;
    end_word(begin);
    word = begin;
    if (flags & unicode::punctuation) end_word(at);
    word = at;
  }
  end_word(end);
}

void WordPieceOffsets::read_word(const AlignedText& segment, std::string_view word) {
  const auto characters =
      std::count_if(word.begin(), word.end(), [](char byte) { return !continues_character(byte); });
  std::vector<int32_t> ids{tables_.unknown};
  if (characters <= tables_.options.max_characters_per_word) {
    ids.clear();
    tables_.spell(word, ids);
  }
  const auto spelling = [&](int32_t id) -> std::string_view {
    return tables_.vocabulary[static_cast<size_t>(id)];
  };
  if (ids.size() == 1) return put(ids.front(), true, spelling(ids.front()), segment.range_of(word));
  size_t begin = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t prefix = i == 0 ? 0 : tables_.options.continuing_prefix.size();
    const size_t size = spelling(ids[i]).size() - prefix;
    put(ids[i], i == 0, spelling(ids[i]), segment.range_of(word.substr(begin, size)));
    begin += size;
  }
}

// MPNet's RobertaProcessing trims all offsets; BERT's post-processors trim none.
void WordPieceOffsets::put(int32_t id, bool starts_word, std::string_view spelling, CharacterRange range) {
  if (tables_.options.roberta_sequence) range = trimmed(range, spelling, false, false);
  out_.ids.push_back(id);
  out_.word_starts.push_back(starts_word);
  offsets_.push_back(range);
}

}  // namespace funicular::text
