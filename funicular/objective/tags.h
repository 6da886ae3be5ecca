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

/// A word is read at its first token, as Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
/// Understanding", NAACL 2019, section 5.3, do; words that a maximum length cuts off are not learnt. One of the windows
/// that overlap reads a word, see TextWindows. Without labels, samples with word starts are read where these say.
///
/// Batch: token_ids, token_type_ids [T]; tag_rows [R] int64, where in the packed batch the words begin; tag_sequences [R]
/// int64, the sample of each; labels [R] int64. Count: `tags` = R, so that the loss is transformers' mean over words; in training the
/// sum of the words' class weights.
class Tags : public RowObjective {
 public:
  /// Throws InputError for class weights or a label smoothing out of range.
  Tags(const text::Tokenizer& tokenizer, const TagOptions& options);
  /// Throws InputError naming the sample whose tags are not as many as its words, or out of range.
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

/// How many words of each sample a batch reads.
std::vector<int64_t> words_of_samples(const MicroBatch& batch);

}  // namespace funicular::objective
