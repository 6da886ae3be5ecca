#include "funicular/task/answers.h"

#include <algorithm>

namespace funicular::task {

bool TokenisedRow::has_tokens() const {
  return std::any_of(tokens.begin(), tokens.end(), [](const auto& text) { return !text.empty(); });
}

void Answers::tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const {
  data::Sample sample;
  text::TokenizedText text;
  for (const std::string& column : row.row.texts) {
    text.ids.clear();
    text.word_starts.clear();
    tokenizer.tokenize(column, text);
    // One vector per text, so that adding a text does not move the elements of earlier texts.
    const auto& ids = row.tokens.emplace_back(text.ids.begin(), text.ids.end());
    sample.columns.push_back({data::TokenSpan(ids.data(), ids.size()), {}});
  }
  row.samples.push_back(std::move(sample));
}

void Answers::count_cut(const TokenisedRow& row, int64_t room, data::CutRows& cut) const {
  int64_t tokens = 0;
  for (const auto& text : row.tokens) tokens += std::ssize(text);
  cut.add(tokens, room);
}

std::vector<int64_t> Answers::rows_of_samples(const MicroBatch& batch) const {
  return std::vector<int64_t>(static_cast<size_t>(batch.packing.sequences()), 1);
}

}  // namespace funicular::task
