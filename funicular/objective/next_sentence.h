#pragma once
// Next-sentence prediction together with masked language modelling: the first BERT's pre-training (Devlin et al.
// 2019, section 3.1 and appendix A.2).

#include "funicular/objective/objective.h"
#include "funicular/objective/token_masker.h"

namespace funicular::objective {

/// Where a piece of at least two tokens is cut in two, in 1 … size - 1: at the beginning of a row, keyed by the seed and
/// `key`, or of a word where no row begins in it. `coin`: a bit for what is done with the parts.
struct Cut {
  size_t place = 0;
  bool coin = false;
};
Cut cut_in_two(const data::Sample& sample, uint64_t key, uint64_t seed);
/// Tokens [begin, end) of a column.
data::Sample::Column part_of(const data::Sample::Column& column, size_t begin, size_t end);

/// Throws InputError for options of single texts.
void require_pairs(const MaskedLmOptions& options);

/// transformers' BertForPreTraining, whose second output tells of two segments how they stand to each other. Batch and
/// outputs: `RELATION_labels` [S] int64, -100 where there is nothing to tell; `RELATION_logits` [S, 2], also a tap. Loss
/// terms `mlm` and `RELATION`.
model::Head pretraining_head(const std::string& relation);
/// perplexity (of the masked tokens) and RELATION_accuracy.
std::unique_ptr<Metrics> pretraining_metrics(const std::string& relation);

/// A piece of a document is cut in two, [CLS] a [SEP] b [SEP], at the beginning of a row (a row is a sentence, or
/// whatever the store's lines were), or of a word where no row begins in it. In half of the draws b is replaced
/// by the beginning of a piece of another document, as long as b at most. Cut and choice are keyed by the seed
/// and the draw, or with MaskedLmOptions::static_masks as the masks are. Where no other document is found, b
/// stays.
///
/// Batch: that of MaskedLm, and `next_sentence_labels` [S]: 0 where b follows, 1 where it does not (as
/// transformers numbers them). Counts: `mlm`, `next_sentence` = S. The loss is the sum of both means: at the start
/// of training ln V + ln 2.
class NextSentence : public Objective {
 public:
  /// Copies what it needs of the vocabulary. Throws InputError without [CLS], [SEP] or [MASK].
  NextSentence(const text::Tokenizer& tokenizer, const MaskedLmOptions& options);
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  /// At most: a piece of another document may be shorter.
  int64_t length(const data::Sample& sample) const override;
  std::optional<uint64_t> other_document_key(const data::Sample& sample) const override;
  /// Documents in the fewest pieces that fit a sequence of two segments.
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  /// pretraining_head("next_sentence").
  model::Head head() const override { return head_of_both(); }
  static model::Head head_of_both();
  /// perplexity (of the masked tokens) and next_sentence_accuracy.
  std::unique_ptr<Metrics> metrics() const override;
  LossOver loss_over() const override { return of_class<NextSentence>(); }
  std::map<std::string, std::string> identity() const override;

  /// The two segments of a sample, and whether the second follows the first.
  struct Pair {
    data::Sample sample;  ///< of two columns
    bool follows = true;
  };
  Pair cut(const data::Sample& sample, uint64_t seed) const;

 private:
  MaskedLmOptions options_;
  text::SequenceTemplate sequence_;
  OwnStores own_stores_;
  TokenMasker masker_;  ///< copied for each batch
};

}  // namespace funicular::objective
