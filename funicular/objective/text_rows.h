#pragma once
// Single texts as packed sequences for inference: without labels and without a loss.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "funicular/objective/objective.h"
#include "funicular/objective/sequence.h"

namespace funicular::objective {

class TextRows final : public Objective {
 public:
  /// `prompt_tokens`: the number of tokens up to the end of the prompt, at the beginning of each sequence, see
  /// model::kPromptTokens; 0: none. Throws InputError for a vocabulary without the template's special tokens.
  TextRows(text::SequenceTemplate form, const SequenceOptions& sequence, model::Head head,
           int64_t prompt_tokens = 0);

  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override;
  LossOver loss_over() const override { return LossOver::rows; }
  model::Head head() const override { return head_; }
  std::map<std::string, std::string> identity() const override { return {}; }

 private:
  text::SequenceTemplate form_;
  SequenceOptions sequence_;
  model::Head head_;
  int64_t prompt_tokens_;
};

}  // namespace funicular::objective
