#include "funicular/objective/word_weights.h"

#include "funicular/base/number.h"

namespace funicular::objective {

WordWeights WordWeights::read(const fs::path& file, const text::Tokenizer& tokenizer, int64_t& left_out) {
  WordWeights weights;
  int64_t lines = 0;
  left_out = 0;
  for_each_line(file, [&](std::string_view line, int64_t number) {
    const size_t tab = line.find('\t');
    const double weight = tab == line.npos ? -1 : read_number(line.substr(tab + 1)).value_or(-1);
    if (weight < 0 || tab == 0)
      throw InputError("masking",
                       "{}:{}: expected a word, a tab and a finite weight of at least 0, found \"{}\"",
                       file.string(), number, line);
    const std::vector<text::TokenizedText> forms = phrase_forms(tokenizer, line.substr(0, tab));
    for (const text::TokenizedText& tokens : forms) weights.set(tokens.ids, weight);
    left_out += forms.empty();
    ++lines;
  });
  if (lines == 0)
    throw InputError("masking", "{}: the file is empty; expected lines of a word, a tab and its weight",
                     file.string());
  if (left_out == lines)
    throw InputError(
        "masking",
        "{}: each of the {} words has a token that the vocabulary lacks; expected words of texts in this "
        "tokenizer's language and case",
        file.string(), lines);
  return weights;
}

void WordWeights::set(std::span<const int32_t> word, double weight) {
  const int32_t number = words_.add(word, static_cast<int32_t>(weights_.size()));
  if (static_cast<size_t>(number) == weights_.size()) weights_.push_back(1);
  weights_[static_cast<size_t>(number)] = weight;
}

double WordWeights::of(std::span<const int32_t> word) const {
  const int32_t number = words_.find(word);
  return number == Phrases::none ? 1 : weights_[static_cast<size_t>(number)];
}

double WordWeights::of(const MaskView& view, const Unit& unit) const {
  double sum = 0, words = 0;
  for (int32_t begin = unit.begin; begin < unit.end;) {
    int32_t end = begin + 1;
    while (end < unit.end && !view.word_starts[static_cast<size_t>(end)]) ++end;
    sum += of(view.tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    ++words;
    begin = end;
  }
  return sum / words;
}

}  // namespace funicular::objective
