#pragma once
// The base class of objectives on a task's rows: each row of a store is a sample, and its texts form one sequence.
// With SequenceOptions::stride, the windows of a row's text are the samples.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "funicular/objective/objective.h"
#include "funicular/objective/sequence.h"

namespace funicular::objective {

class RowObjective : public Objective {
 public:
  /// `labels`: the kinds of labels that collate can read; empty: collate reads none. Throws InputError for a
  /// vocabulary without the special tokens, and for a length without room for text.
  RowObjective(const text::Tokenizer& tokenizer, const SequenceOptions& sequence,
               std::vector<data::LabelKind> labels);
  /// Uses another sequence template than the tokeniser's.
  RowObjective(const text::Tokenizer& tokenizer, const SequenceOptions& sequence,
               std::vector<data::LabelKind> labels, text::SequenceTemplate form);
  int64_t length(const data::Sample& sample) const override;
  /// Each row, or each window of a row, is a sample.
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  /// The key "sequence".
  std::map<std::string, std::string> identity() const override;

 protected:
  PackedSequences pack(std::span<const data::Sample> samples) const;
  const text::SequenceTemplate& form() const { return form_; }
  const SequenceOptions& sequence() const { return sequence_; }

 private:
  SequenceOptions sequence_;
  text::SequenceTemplate form_;
  OwnStores own_stores_;
};

}  // namespace funicular::objective
