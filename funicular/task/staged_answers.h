#pragma once
// Answers that state their origin: the layer at which a row left, or the model of a cascade.

#include <memory>
#include <string>
#include <utility>

#include "funicular/task/answers.h"

namespace funicular::task {

/// The answers of `inner`, with one more key. The last column of logits and scores is its number.
class StagedAnswers final : public Answers {
 public:
  StagedAnswers(std::unique_ptr<const Answers> inner, std::string key);
  int64_t width() const override { return inner_->width() + 1; }
  void tokenise(const text::Tokenizer& tokenizer, TokenisedRow& row) const override {
    inner_->tokenise(tokenizer, row);
  }
  void count_cut(const TokenisedRow& row, int64_t room, data::CutRows& cut) const override {
    inner_->count_cut(row, room, cut);
  }
  at::Tensor scores(const at::Tensor& logits) const override;
  Answer answer(const TokenisedRow& row, std::span<const SampleScores> scores) const override;
  std::string example() const override;

 private:
  std::string with_key(std::string json, int64_t number) const;

  std::unique_ptr<const Answers> inner_;
  std::string key_;
};

}  // namespace funicular::task
