#include "funicular/objective/chinese_words.h"

#include <algorithm>
#include <string>

#include "funicular/base/error.h"
#include "funicular/base/log.h"
#include "funicular/text/utf8.h"

namespace funicular::objective {

namespace {

bool is_ideograph(uint32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF);
}

/// Returns the code point of a text that is a single ideograph; else 0.
uint32_t single_ideograph(std::string_view text) {
  if (text.empty()) return 0;
  const char *at = text.data(), *end = at + text.size();
  const uint32_t code = text::next_code_point(at, end);
  return at == end && is_ideograph(code) ? code : 0;
}

bool begins_with_ideograph(std::string_view text) {
  if (text.empty()) return false;
  const char* at = text.data();
  return is_ideograph(text::next_code_point(at, at + text.size()));
}

}  // namespace

bool splits_ideographs(const text::Tokenizer& tokenizer) {
  // It also works if the vocabulary has neither character: they are two unknown words then.
  const std::vector<uint8_t> starts = tokenizer.tokenize("中国").word_starts;
  return std::count(starts.begin(), starts.end(), 1) == 2;
}

void warn_of_sentences_as_words(const text::Tokenizer& tokenizer) {
  constexpr double kOfChinese = 0.05;  // GPT-2's vocabulary: 0.0005
  if (splits_ideographs(tokenizer)) return;
  int64_t ideographs = 0;
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    ideographs += begins_with_ideograph(tokenizer.token_text(id));
  if (static_cast<double>(ideographs) < kOfChinese * tokenizer.size()) return;
  log::warning(
      "{} of the tokenizer's tokens are Chinese, but the tokenizer finds words by blanks. Thus a Chinese "
      "sentence counts as one word and is masked whole or not at all. Put blanks between the words before "
      "you tokenise the text",
      ideographs);
}

ChineseWords::ChineseWords(const text::Tokenizer& tokenizer, const fs::path& dictionary)
    : segmenter_(dictionary) {
  if (!splits_ideographs(tokenizer))
    throw InputError("masking",
                     "--word-dictionary joins ideographs that are separate tokens into words, but this "
                     "tokenizer ({}) finds words by blanks. Leave the option out, and put blanks between the "
                     "words before you tokenise the text (WordPiece: or set tokenize_chinese_chars)",
                     tokenizer.description());
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
