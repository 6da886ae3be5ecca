#include "funicular/text/piece_offsets.h"

#include <utility>

#include "funicular/text/offset_trimming.h"
#include "funicular/text/piece_tables.h"

namespace funicular::text {

void PieceOffsets::read(std::string_view utf8) {
  const AlignedText whole = AlignedText::original(utf8);
  tables_.raw.split(
      whole.text,
      [&](std::string_view piece) {
        AlignedText text = whole.part(piece);
        apply_steps(tables_.rules.normalizer, text);
        tables_.normalized.split(
            text.text, [&](std::string_view segment) { read_segment(text.part(segment)); },
            [&](int32_t id, std::string_view token) { put(id, true, token, text.range_of(token)); });
      },
      [&](int32_t id, std::string_view token) { put(id, true, token, whole.range_of(token)); });
}

void PieceOffsets::read_segment(AlignedText segment) {
  const bool nowhere = tables_.splits_nowhere();
  for (const AlignedText& word : split_words(tables_.rules.splitter, std::move(segment))) {
    parts_.clear();
    tables_.model->encode(word.text, parts_);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const WordPart& part = parts_[i];
      const std::string_view spelling = std::string_view(word.text).substr(part.begin, part.end - part.begin);
      put(part.id, i == 0 || (nowhere && tables_.begins_word(part.id)), spelling, word.range_of(spelling));
    }
  }
}

void PieceOffsets::put(int32_t id, bool starts_word, std::string_view spelling, CharacterRange range) {
  if (tables_.rules.trim_offsets)
    range = trimmed(range, spelling, offsets_.size() == first_, tables_.rules.trim_keeps_prefix);
  out_.ids.push_back(id);
  out_.word_starts.push_back(starts_word);
  offsets_.push_back(range);
}

}  // namespace funicular::text
