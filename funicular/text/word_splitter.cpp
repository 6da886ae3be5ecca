#include "funicular/text/word_splitter.h"

#include <utility>

#include "funicular/text/normalizer.h"
#include "funicular/text/text_rewriter.h"
#include "funicular/text/unicode_tables.h"
#include "funicular/text/utf8.h"

namespace funicular::text {
namespace {

using Behavior = SplitterStep::Behavior;

/// A part of a text: a separator (`match`), or the text between separators.
struct TextPart {
  size_t begin, end;
  bool match;
};

/// Returns the parts; each character for which `separates` is true is a separator of its own.
template <class Separates>
std::vector<TextPart> parts_by(const std::string& text, Separates separates) {
  std::vector<TextPart> parts;
  size_t done = 0;
  for (const char *begin = text.data(), *at = begin, *end = begin + text.size(); at < end;) {
    const auto place = static_cast<size_t>(at - begin);
    if (!separates(next_valid_code_point(at, end))) continue;
    if (done < place) parts.push_back({done, place, false});
    done = static_cast<size_t>(at - begin);
    parts.push_back({place, done, true});
  }
  if (done < text.size()) parts.push_back({done, text.size(), false});
  return parts;
}

std::vector<TextPart> parts_by_text(const std::string& text, const std::string& pattern) {
  std::vector<TextPart> parts;
  size_t done = 0;
  for (size_t found; (found = text.find(pattern, done)) != std::string::npos;) {
    if (done < found) parts.push_back({done, found, false});
    done = found + pattern.size();
    parts.push_back({found, done, true});
  }
  if (done < text.size()) parts.push_back({done, text.size(), false});
  return parts;
}

std::vector<TextPart> merged_with_next(const std::vector<TextPart>& parts) {
  std::vector<TextPart> result;  // backwards
  bool match_behind = false;
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i].match && !match_behind && !result.empty())
      result.back().begin = parts[i].begin;
    else
      result.push_back(parts[i]);
    match_behind = parts[i].match;
  }
  return {result.rbegin(), result.rend()};
}

/// The words that the parts become.
std::vector<TextPart> behave(const std::vector<TextPart>& parts, Behavior behavior) {
  if (behavior == Behavior::isolated) return parts;
  if (behavior == Behavior::merged_with_next) return merged_with_next(parts);
  std::vector<TextPart> result;
  bool match_before = false;
  for (const TextPart& part : parts) {
    const bool joins =
        behavior == Behavior::contiguous ? part.match == match_before : part.match && !match_before;
    if (behavior == Behavior::removed) {
      if (!part.match) result.push_back(part);
    } else if (joins && !result.empty()) {
      result.back().end = part.end;
    } else {
      result.push_back(part);
    }
    match_before = part.match;
  }
  return result;
}

void put_parts(const AlignedText& text, const std::vector<TextPart>& parts, std::vector<AlignedText>& out) {
  for (const TextPart& part : parts) {
    if (part.begin == part.end) continue;
    AlignedText word{text.text.substr(part.begin, part.end - part.begin), {}};
    if (!text.origin.empty())
      word.origin.assign(text.origin.begin() + static_cast<ptrdiff_t>(part.begin),
                         text.origin.begin() + static_cast<ptrdiff_t>(part.end));
    out.push_back(std::move(word));
  }
}

void put_marks(const SplitterStep& step, AlignedText text, std::vector<AlignedText>& out) {
  const bool begins = !text.origin.empty() && text.origin.front().begin == 0;
  TextRewriter rewriter(std::move(text));
  const std::string& old = rewriter.old();
  const bool marked = old.starts_with(' ') || old.starts_with(step.mark);
  if (!marked && (step.prepend == SplitterStep::Prepend::always ||
                  (step.prepend == SplitterStep::Prepend::first && begins)))
    rewriter.put(step.mark, 0);
  size_t done = 0;
  for (size_t found; (found = old.find(' ', done)) != std::string::npos; done = found + 1) {
    rewriter.keep(done, found);
    rewriter.put(step.mark, found);
  }
  rewriter.keep(done, old.size());
  const AlignedText result = rewriter.take();
  if (!step.split) return put_parts(result, {{0, result.text.size(), false}}, out);
  put_parts(result, merged_with_next(parts_by_text(result.text, step.mark)), out);
}

void split_by(const SplitterStep& step, AlignedText text, std::vector<AlignedText>& out) {
  const auto has = [](uint8_t flag) {
    return [flag](uint32_t code) { return (flags_of(code) & flag) != 0; };
  };
  switch (step.kind) {
    case SplitterStep::white_space:
      return put_parts(text, behave(parts_by(text.text, has(unicode::white)), Behavior::removed), out);
    case SplitterStep::punctuation:
      return put_parts(text, behave(parts_by(text.text, has(unicode::punctuation)), step.behavior), out);
    case SplitterStep::literal: {
      std::vector<TextPart> parts = parts_by_text(text.text, step.pattern);
      for (TextPart& part : parts) part.match ^= step.invert;
      return put_parts(text, behave(parts, step.behavior), out);
    }
    case SplitterStep::metaspace:
      return put_marks(step, std::move(text), out);
  }
}

}  // namespace

std::vector<AlignedText> split_words(const std::vector<SplitterStep>& steps, AlignedText text) {
  std::vector<AlignedText> words;
  if (text.text.empty()) return words;
  words.push_back(std::move(text));
  for (const SplitterStep& step : steps) {
    std::vector<AlignedText> next;
    for (AlignedText& word : words) split_by(step, std::move(word), next);
    words = std::move(next);
  }
  return words;
}

}  // namespace funicular::text
