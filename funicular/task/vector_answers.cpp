#include "funicular/task/vector_answers.h"

#include <torch/types.h>

#include <string_view>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/format/text_format.h"
#include "funicular/model/sentence_encoder.h"

namespace funicular::task {

VectorAnswers::VectorAnswers(VectorOptions options) : Answers({}), options_(std::move(options)) {
  if (width() < 1 || width() > options_.width)
    throw InputError("usage", "--truncate-dim {}: the model's vectors have {} numbers; expected 1 to {}",
                     width(), options_.width, options_.width);
}

void VectorAnswers::tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const {
  const std::vector<std::string_view> columns(row.row.texts.begin(), row.row.texts.end());
  const std::string text =
      options_.prompt + (columns.size() == 1 ? row.row.texts.front() : format::join_columns(columns));
  const text::TokenizedText tokens = tokenizer.tokenize(text);
  const auto& ids = row.tokens.emplace_back(tokens.ids.begin(), tokens.ids.end());
  const bool none = ids.empty() && options_.no_token;
  data::Sample& sample = row.samples.emplace_back();
  sample.columns.push_back(
      {none ? data::TokenSpan(&*options_.no_token, 1) : data::TokenSpan(ids.data(), ids.size()), {}});
}

at::Tensor VectorAnswers::scores(const at::Tensor& vectors) const {
  const at::Tensor kept = options_.truncate_dim ? vectors.narrow(1, 0, width()) : vectors;
  return options_.normalise ? model::normalise_rows(kept) : kept;
}

Answer VectorAnswers::answer(const TokenisedRow& /*row*/, std::span<const SampleScores> scores) const {
  const std::vector<float>& values = scores.front().values;
  return {.json = {reinterpret_cast<const char*>(values.data()), record_bytes()}};
}

}  // namespace funicular::task
