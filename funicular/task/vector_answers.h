#pragma once
// Vectors of texts as a model's answers; each is a record of fp32 numbers.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "funicular/task/answers.h"

namespace funicular::task {

struct VectorOptions {
  int64_t width = 0;                      ///< width of the model's vectors
  std::optional<int64_t> truncate_dim{};  ///< keeps only the first numbers of each vector
  bool normalise = false;                 ///< then normalises to length 1
  std::string prompt{};                   ///< prompt before each text
  /// Token for a text without tokens. None: such a text has its special tokens.
  std::optional<uint32_t> no_token{};
  int64_t special_tokens =
      0;  ///< special tokens of the tokeniser's sequences that this model's texts do not get
};

class VectorAnswers final : public Answers {
 public:
  /// Throws InputError for a truncate_dim outside of 1 to width.
  explicit VectorAnswers(VectorOptions options);

  const char* output() const override { return "vectors"; }
  int64_t width() const override { return options_.truncate_dim.value_or(options_.width); }
  size_t record_bytes() const override { return static_cast<size_t>(width()) * sizeof(float); }
  /// Columns of a table are joined by blanks into one text.
  void tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const override;
  at::Tensor scores(const at::Tensor& vectors) const override;
  Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const override;
  void count_cut(const TokenisedRow& row, int64_t room, data::CutRows& cut) const override {
    Answers::count_cut(row, room + options_.special_tokens, cut);
  }

 private:
  VectorOptions options_;
};

}  // namespace funicular::task
