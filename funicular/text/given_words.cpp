#include "funicular/text/given_words.h"

#include <algorithm>
#include <string>

#include "funicular/base/error.h"

namespace funicular::text {

std::string_view next_given_word(std::string_view& rest) {
  constexpr std::string_view kWide = "\xE3\x80\x80";  // U+3000
  while (!rest.empty()) {
    const size_t wide = rest.find(kWide), narrow = rest.find_first_of(" \t\r\n");
    const size_t end = std::min({wide, narrow, rest.size()});
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + (end == wide ? kWide.size() : 1), rest.size()));
    if (!word.empty()) return word;
  }
  return {};
}

void tokenize_words(const Tokenizer& tokenizer, std::span<const std::string_view> words, TokenizedText& out) {
  const bool byte_level = tokenizer.type() == "BPE";
  std::string with_blank;
  for (const std::string_view word : words) {
    const size_t first = out.ids.size();
    if (byte_level && !word.starts_with(' ')) {
      with_blank.assign(1, ' ').append(word);
      tokenizer.tokenize(with_blank, out);
    } else {
      tokenizer.tokenize(word, out);
    }
    if (out.ids.size() == first) {
      if (tokenizer.special().unknown < 0)
        throw InputError(kTokenizerComponent,
                         "the word \"{}\" has no token, and the vocabulary has no unknown token to give it",
                         word);
      out.ids.push_back(tokenizer.special().unknown);
      out.word_starts.push_back(1);
    }
    out.word_starts[first] = 1;
    for (size_t i = first + 1; i < out.ids.size(); ++i) out.word_starts[i] = 0;
  }
}

}  // namespace funicular::text
