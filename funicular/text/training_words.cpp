#include "funicular/text/training_words.h"

#include <utility>

#include "funicular/text/aligned_text.h"
#include "funicular/text/byte_level.h"
#include "funicular/text/nfc.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

/// Longer chunks are cut at once: texts without blanks would fill the memory.
constexpr size_t kLongestChunk = 48;
/// How many different chunks are kept before they are cut.
constexpr size_t kMostChunks = 1 << 17;

/// Finds the first blank behind a character that is no white space, or the end of the text.
size_t end_of_chunk(std::string_view text, size_t begin) {
  for (size_t end = begin; (end = text.find(' ', end)) != text.npos; ++end) {
    if (end == begin) continue;
    const auto before = static_cast<uint8_t>(text[end - 1]);
    if (before > ' ' && before < 0x7F) return end;
    int size = 0;
    if (before >= 0x80 &&
        category_of(last_code_point(text.substr(begin, end - begin), size)) != unicode::white_space)
      return end;
  }
  return text.size();
}

enum class PartKind : uint8_t { letters, digits, punctuation };

PartKind part_kind(uint32_t code) {
  if ((flags_of(code) & unicode::punctuation) != 0) return PartKind::punctuation;
  return category_of(code) == unicode::number ? PartKind::digits : PartKind::letters;
}

}  // namespace

std::string_view next_part_of_one_kind(const char*& at, const char* end) {
  const char* const begin = at;
  const bool marked = std::string_view(at, static_cast<size_t>(end - at)).starts_with(kBlankMark);
  if (marked) at += std::string_view(kBlankMark).size();
  if (at == end) return {begin, static_cast<size_t>(at - begin)};
  const PartKind kind = part_kind(next_valid_code_point(at, end));
  while (at < end) {
    const char* behind = at;
    if (part_kind(next_valid_code_point(behind, end)) != kind) break;
    at = behind;
  }
  return {begin, static_cast<size_t>(at - begin)};
}

TrainingWords::TrainingWords(TrainingRules rules) : rules_(std::move(rules)) {}

// No rule looks past a blank that begins white space, so that a text may be cut before it. Each chunk is then
// normalised once, however often it stands in the text.
void TrainingWords::add(std::string_view utf8) {
  std::string valid;
  if (!is_valid_utf8(utf8)) utf8 = valid = to_valid_utf8(utf8);
  for (size_t begin = 0, end = 0; begin < utf8.size(); begin = end) {
    end = end_of_chunk(utf8, begin);
    const std::string_view chunk = utf8.substr(begin, end - begin);
    if (chunk.size() > kLongestChunk)
      cut(chunk, 1);
    else
      chunks_.add(chunk);
  }
  if (chunks_.size() > kMostChunks) count_chunks();
}

WordCounts TrainingWords::take() {
  count_chunks();
  return std::exchange(words_, {});
}

void TrainingWords::count_chunks() {
  for (const CountedWord& chunk : chunks_.sorted()) cut(chunk.text, chunk.times);
  chunks_ = {};
}

void TrainingWords::cut(std::string_view chunk, uint64_t times) {
  switch (rules_.kind) {
    case VocabularyKind::word_piece:
      return cut_word_piece(chunk, times);
    case VocabularyKind::byte_bpe:
      return cut_byte_bpe(chunk, times);
    case VocabularyKind::bpe:
    case VocabularyKind::unigram:
      return cut_pieces(chunk, times);
  }
}

void TrainingWords::cut_word_piece(std::string_view chunk, uint64_t times) {
  text_ = normalize(chunk, NormalizerRules(rules_.word_piece));
  const char *at = text_.data(), *const end = at + text_.size(), *begin = at;
  const auto end_word = [&](const char* behind) {
    if (begin < behind) words_.add({begin, static_cast<size_t>(behind - begin)}, times);
  };
  while (at < end) {
    const char* const character = at;
    const uint8_t flags = flags_of(next_valid_code_point(at, end));
    if ((flags & (unicode::white | unicode::punctuation)) == 0) continue;
    end_word(character);
    begin = character;
    if ((flags & unicode::white) == 0) end_word(at);
    begin = at;
  }
  end_word(end);
}

void TrainingWords::cut_byte_bpe(std::string_view chunk, uint64_t times) {
  text_ = rules_.compose && !is_surely_composed(chunk) ? compose(chunk) : std::string(chunk);
  const size_t size = text_.size();
  text_.append(readable_behind, '\0');
  for (const char *at = text_.data(), *const end = at + size; at < end;) {
    const char* const behind = end_of_piece(at, end);
    words_.add({at, static_cast<size_t>(behind - at)}, times);
    at = behind;
  }
}

void TrainingWords::cut_pieces(std::string_view chunk, uint64_t times) {
  AlignedText text{std::string(chunk), {}};
  apply_steps(rules_.pieces.normalizer, text);
  for (const AlignedText& word : split_words(rules_.pieces.splitter, std::move(text)))
    for (const char *at = word.text.data(), *const end = at + word.text.size(); at < end;)
      words_.add(next_part_of_one_kind(at, end), times);
}

}  // namespace funicular::text
