#include "funicular/text/byte_bpe_offsets.h"

#include <utility>

#include "funicular/text/byte_bpe_tables.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/nfc.h"
#include "funicular/text/offset_trimming.h"

namespace funicular::text {
void ByteBpeOffsets::read(std::string_view utf8) {
  const AlignedText whole = AlignedText::original(utf8);
  tables_.raw.split(
      whole.text,
      [&](std::string_view piece) {
        AlignedText text = whole.part(piece);
        if (tables_.options.compose) text = text.replaced(compose_characters(text.text));
        tables_.normalized.split(
            text.text, [&](std::string_view segment) { read_segment(text.part(segment)); },
            [&](int32_t id, std::string_view token) { put(id, true, token, text.range_of(token)); });
      },
      [&](int32_t id, std::string_view token) { put(id, true, token, whole.range_of(token)); });
}

void ByteBpeOffsets::read_segment(AlignedText segment) {
  if (tables_.options.add_prefix_space && segment.text.front() != ' ') {
    segment.text.insert(segment.text.begin(), ' ');
    segment.origin.insert(segment.origin.begin(), segment.origin.front());
  }
  const size_t size = segment.text.size();
  segment.text.append(readable_behind, '\0');
  const char *at = segment.text.data(), *end = at + size;
  while (at < end) {
    const char* behind = tables_.options.use_regex ? end_of_piece(at, end) : end;
    read_word(segment, {at, static_cast<size_t>(behind - at)});
    at = behind;
  }
}

void ByteBpeOffsets::read_word(const AlignedText& segment, std::string_view word) {
  if (tables_.options.ignore_merges) {
    const auto found = tables_.ids.find(to_byte_characters(word));
    if (found != tables_.ids.end()) return put(found->second, true, found->first, segment.range_of(word));
  }
  // By the bytes of GPT-2's characters: sizes of tokens are in these, and skip what is left out.
  std::vector<CharacterRange> origin;
  const auto begin = static_cast<size_t>(word.data() - segment.text.data());
  for (size_t i = 0; i < word.size(); ++i)
    origin.insert(origin.end(), static_cast<size_t>(byte_character_size(static_cast<uint8_t>(word[i]))),
                  segment.origin[begin + i]);
  tables_.spell(word, symbols_, merging_);
  size_t place = 0;
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const auto size = static_cast<size_t>(symbols_[i].size);
    put(symbols_[i].id, i == 0, tables_.vocabulary[static_cast<size_t>(symbols_[i].id)],
        {origin[place].begin, origin[place + size - 1].end});
    place += size;
  }
}

void ByteBpeOffsets::put(int32_t id, bool starts_word, std::string_view spelling, CharacterRange range) {
  if (tables_.options.trim_offsets)
    range = trimmed(range, spelling, offsets_.size() == first_, tables_.options.trim_keeps_prefix);
  out_.ids.push_back(id);
  out_.word_starts.push_back(starts_word);
  offsets_.push_back(range);
}

}  // namespace funicular::text
