#include "funicular/text/normalizer_steps.h"

#include <algorithm>
#include <utility>

#include "funicular/text/clusters.h"
#include "funicular/text/nfc.h"
#include "funicular/text/normalizer.h"
#include "funicular/text/text_rewriter.h"
#include "funicular/text/unicode_tables.h"

namespace funicular::text {
namespace {

bool is_white(uint32_t code) {
  return (flags_of(code) & unicode::white) != 0;
}

AlignedText with_characters(const AlignedText& text, const std::vector<NormalizedCharacter>& characters) {
  if (!text.origin.empty()) return text.replaced(characters);
  AlignedText result;
  for (const NormalizedCharacter& character : characters) append_code_point(character.code, result.text);
  return result;
}

void normal_form(NormalizerStep::Kind kind, AlignedText& text) {
  const bool composes = kind == NormalizerStep::nfc || kind == NormalizerStep::nfkc;
  const bool compatible = kind == NormalizerStep::nfkc || kind == NormalizerStep::nfkd;
  const auto how = compatible ? Compatibility::replace : Compatibility::keep;
  const bool ascii = std::all_of(text.text.begin(), text.text.end(),
                                 [](char byte) { return static_cast<uint8_t>(byte) < 0x80; });
  if (ascii) return;
  text = with_characters(
      text, composes ? compose_characters(text.text, how) : decompose_characters(text.text, how));
}

void apply_map(const CharacterMap& map, AlignedText& text) {
  if (text.origin.empty()) {
    std::string result;
    result.reserve(text.text.size());
    map.append(text.text, result);
    text.text = std::move(result);
    return;
  }
  std::vector<NormalizedCharacter> characters;
  if (map.apply(text.text, characters)) text = text.replaced(characters);
}

// SentencePiece's rules for machine translation: controls go, and other separators become blanks.
void apply_nmt(AlignedText& text) {
  TextRewriter rewriter(std::move(text));
  rewriter.for_each([&](uint32_t code, size_t begin, size_t end) {
    const bool dropped = (code >= 1 && code <= 8) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
                         code == 0x7F || code == 0x8F || code == 0x9F;
    if (dropped) return;
    constexpr uint32_t kBlanks[] = {0x09,   0x0A,   0x0C,   0x0D,   0x1680, 0x200B, 0x200C, 0x200D,
                                    0x200E, 0x200F, 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD};
    if (std::find(std::begin(kBlanks), std::end(kBlanks), code) != std::end(kBlanks))
      rewriter.put(" ", begin);
    else
      rewriter.keep(begin, end);
  });
  text = rewriter.take();
}

void apply_lowercase(AlignedText& text) {
  TextRewriter rewriter(std::move(text));
  rewriter.for_each([&](uint32_t code, size_t begin, size_t end) {
    const CodePoints lower = lower_case(code);
    if (lower.size == 1 && lower.codes[0] == code) return rewriter.keep(begin, end);
    std::string parts;
    for (const uint32_t part : lower) append_code_point(part, parts);
    rewriter.put(parts, begin);
  });
  text = rewriter.take();
}

void apply_strip_accents(AlignedText& text) {
  TextRewriter rewriter(std::move(text));
  rewriter.for_each([&](uint32_t code, size_t begin, size_t end) {
    if (!is_combining_mark(code)) rewriter.keep(begin, end);
  });
  text = rewriter.take();
}

void apply_strip(bool left, bool right, AlignedText& text) {
  size_t begin = 0, end = text.text.size();
  for (int size = 0; right && end > 0 && is_white(last_code_point({text.text.data(), end}, size));)
    end -= static_cast<size_t>(size);
  while (left && begin < end) {
    const char* at = text.text.data() + begin;
    if (!is_white(next_code_point(at, text.text.data() + end))) break;
    begin = static_cast<size_t>(at - text.text.data());
  }
  if (begin == 0 && end == text.text.size()) return;
  TextRewriter rewriter(std::move(text));
  rewriter.keep(begin, end);
  text = rewriter.take();
}

void apply_prepend(const std::string& content, AlignedText& text) {
  if (text.text.empty()) return;
  const size_t size = text.text.size();
  TextRewriter rewriter(std::move(text));
  rewriter.put(content, 0);
  rewriter.keep(0, size);
  text = rewriter.take();
}

void replace_text(const std::string& pattern, const std::string& content, AlignedText& text) {
  size_t found = text.text.find(pattern);
  if (found == std::string::npos) return;
  TextRewriter rewriter(std::move(text));
  const std::string& old = rewriter.old();
  size_t done = 0;
  for (; found != std::string::npos; found = old.find(pattern, done)) {
    rewriter.keep(done, found);
    done = found + pattern.size();
    rewriter.put(content, done - 1);
  }
  rewriter.keep(done, old.size());
  text = rewriter.take();
}

/// Replaces runs of two characters or more that `joins` admits, and single ones that `alone` admits. At each place the run
/// is tried first.
template <class Joins, class Alone>
void replace_runs(const std::string& content, AlignedText& text, Joins joins, Alone alone) {
  TextRewriter rewriter(std::move(text));
  size_t run = 0, run_end = 0, count = 0;
  bool single = false;
  const auto end_run = [&] {
    if (count > 1 || (count == 1 && single))
      rewriter.put(content, run_end - 1);
    else
      rewriter.keep(run, run_end);
    count = 0;
  };
  rewriter.for_each([&](uint32_t code, size_t begin, size_t end) {
    if (!joins(code)) {
      if (count > 0) end_run();
      return rewriter.keep(begin, end);
    }
    if (count++ == 0) run = begin, single = alone(code);
    run_end = end;
  });
  if (count > 0) end_run();
  text = rewriter.take();
}

void apply_step(const NormalizerStep& step, AlignedText& text) {
  switch (step.kind) {
    case NormalizerStep::precompiled:
      return apply_map(*step.map, text);
    case NormalizerStep::nfc:
    case NormalizerStep::nfd:
    case NormalizerStep::nfkc:
    case NormalizerStep::nfkd:
      return normal_form(step.kind, text);
    case NormalizerStep::nmt:
      return apply_nmt(text);
    case NormalizerStep::lowercase:
      return apply_lowercase(text);
    case NormalizerStep::strip:
      return apply_strip(step.left, step.right, text);
    case NormalizerStep::strip_accents:
      return apply_strip_accents(text);
    case NormalizerStep::prepend:
      return apply_prepend(step.content, text);
    case NormalizerStep::replace_text:
      return replace_text(step.pattern, step.content, text);
    case NormalizerStep::replace_blanks:
      return replace_runs(
          step.content, text, [](uint32_t code) { return code == ' '; }, [](uint32_t) { return false; });
    case NormalizerStep::replace_white_space:
      return replace_runs(step.content, text, is_white,
                          [](uint32_t code) { return code == '\n' || code == '\r' || code == '\t'; });
  }
}

}  // namespace

bool NormalizerStep::operator==(const NormalizerStep& other) const {
  const bool same_map = map == other.map || (map && other.map && *map == *other.map);
  return kind == other.kind && left == other.left && right == other.right && pattern == other.pattern &&
         content == other.content && same_map;
}

void apply_steps(const std::vector<NormalizerStep>& steps, AlignedText& text) {
  for (const NormalizerStep& step : steps) {
    if (text.text.empty()) return;
    apply_step(step, text);
  }
}

std::string normalize(std::string_view utf8, const std::vector<NormalizerStep>& steps) {
  AlignedText text{std::string(utf8), {}};
  apply_steps(steps, text);
  return std::move(text.text);
}

}  // namespace funicular::text
