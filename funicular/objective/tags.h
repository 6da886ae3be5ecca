#pragma once
// A tag for each word of a text: named entities, parts of speech.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "funicular/objective/class_loss.h"
#include "funicular/objective/row_objective.h"

namespace funicular::objective {

struct TagOptions {
  SequenceOptions sequence;
  std::vector<std::string> tags;  ///< their names, by number
  bool labelled = true;           ///< false: for prediction; no `labels`
  ClassLoss loss = {};            ///< of a word's tag
};

/// The first token of a word represents it, as in Devlin et al., "BERT: Pre-training of Deep Bidirectional
/// Transformers for Language Understanding", NAACL 2019, section 5.3. Words behind the maximum length are not learnt.
/// If windows overlap, only one of them reads a word, see TextWindows. Without labels, a sample's word starts, if it
/// has some, select the words to read.
///
/// Batch: token_ids, token_type_ids [T], labels [R] int64. Also tag_rows [R] int64, the rows of the words' first
/// tokens in the packed batch, and tag_sequences [R] int64, the sample of each. Count: `tags` = R, so that the loss
/// is transformers' mean over words; in training the sum of the words' class weights.
class Tags : public RowObjective {
 public:
  /// Throws InputError for class weights or a label smoothing out of range.
  Tags(const text::Tokenizer& tokenizer, const TagOptions& options);
  /// Throws InputError naming a sample whose number of tags differs from its words, or with a tag out of range.
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  model::Head head() const override;
  /// Throws InputError for a configuration with another number of tags.
  Model build(model::ModelOptions encoder) const override;
  /// See objective/tag_metrics.h.
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<Tags>(); }
  std::map<std::string, std::string> identity() const override;

 private:
  TagOptions options_;
};

/// The number of words that a batch reads from each sample.
std::vector<int64_t> words_of_samples(const MicroBatch& batch);

}  // namespace funicular::objective
