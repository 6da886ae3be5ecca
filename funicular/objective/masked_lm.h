#pragma once
// Masked language modelling (Devlin et al. 2019, section 3.1), with new masks at every draw.

#include <memory>

#include "funicular/objective/objective.h"
#include "funicular/objective/token_masker.h"

namespace funicular::objective {

/// Batch: token_ids, token_type_ids [T], mlm_rows [M] (rows of the packed batch, ascending), mlm_labels [M].
/// Count: `mlm` = M.
class MaskedLm : public Objective {
 public:
  /// Copies the parts of the vocabulary that it needs. Throws InputError without [CLS], [SEP] or [MASK].
  MaskedLm(const text::Tokenizer& tokenizer, const MaskedLmOptions& options);
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override;
  /// Splits documents into the fewest pieces that fit a sequence, or packs whole rows if MaskedLmOptions::pack says
  /// so.
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  model::Head head() const override { return model::Head::masked_lm; }
  /// Perplexity.
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<MaskedLm>(); }
  std::map<std::string, std::string> identity() const override;

 private:
  MaskedLmOptions options_;
  text::SequenceTemplate sequence_;
  OwnStores own_stores_;
  TokenMasker masker_;  ///< copied for each batch
};

}  // namespace funicular::objective
