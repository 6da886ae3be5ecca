#include "funicular/objective/chinese_words.h"

#include <string>

#include "funicular/text/utf8.h"

namespace funicular::objective {

namespace {

/// The code point that is all of a text, if it is an ideograph; else 0.
uint32_t single_ideograph(std::string_view text) {
  if (text.empty()) return 0;
  const char *at = text.data(), *end = at + text.size();
  const uint32_t code = text::next_code_point(at, end);
  const bool ideograph = (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
                         (code >= 0x20000 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF);
  return at == end && ideograph ? code : 0;
}

}  // namespace

ChineseWords::ChineseWords(const text::Tokenizer& tokenizer, const fs::path& dictionary)
    : segmenter_(dictionary) {
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    ideographs_.push_back(single_ideograph(tokenizer.token_text(id)));
}

void ChineseWords::mark(const MaskView& view, std::vector<uint8_t>& word_starts) const {
  if (word_starts.size() != view.tokens.size()) word_starts.assign(view.tokens.size(), 1);
  const auto ideograph = [&](size_t place) {
    const auto id = static_cast<size_t>(view.tokens[place]);
    // A piece that continues a word of other characters is part of that word.
    return id < ideographs_.size() && word_starts[place] ? ideographs_[id] : 0;
  };
  std::string run;
  std::vector<uint32_t> ends;
  std::vector<uint8_t> starts;
  for (size_t begin = 0; begin < view.tokens.size();) {
    run.clear();
    ends.clear();
    size_t place = begin;
    for (; place < view.tokens.size() && ideograph(place); ++place) {
      if (place > begin && begins_row(view, place)) break;
      text::append_code_point(ideograph(place), run);
      ends.push_back(static_cast<uint32_t>(run.size()));
    }
    if (ends.empty()) {
      ++begin;
      continue;
    }
    segmenter_.mark_words(run, ends, starts);
    for (size_t i = 0; i < starts.size(); ++i) word_starts[begin + i] = starts[i];
    begin = place;
  }
}

}  // namespace funicular::objective
