#pragma once
// Next-sentence prediction together with masked language modelling: the first BERT's pre-training (Devlin et al.
// 2019, section 3.1 and appendix A.2).

#include "funicular/objective/objective.h"
#include "funicular/objective/token_masker.h"

namespace funicular::objective {

/// The cut of a piece of at least two tokens, keyed by the seed and `key`. `place` lies in 1 … size - 1. It is the
/// beginning of a row, or of a word if no row begins within the piece. `coin` is a random bit by which the objective
/// changes the second part or the order.
struct Cut {
  size_t place = 0;
  bool coin = false;
};
Cut cut_in_two(const data::Sample& sample, uint64_t key, uint64_t seed);
/// Tokens [begin, end) of a column.
data::Sample::Column part_of(const data::Sample::Column& column, size_t begin, size_t end);

/// Throws InputError for options that apply only to single texts.
void require_pairs(const MaskedLmOptions& options);

/// transformers' BertForPreTraining, whose second output classifies the relation of two segments. Batch and outputs:
/// `RELATION_labels` [S] int64, -100 for sequences without a relation; `RELATION_logits` [S, 2], also a tap. Loss
/// terms `mlm` and `RELATION`.
model::Head pretraining_head(const std::string& relation);
/// perplexity (of the masked tokens) and RELATION_accuracy.
std::unique_ptr<Metrics> pretraining_metrics(const std::string& relation);

/// A piece of a document is cut in two: [CLS] a [SEP] b [SEP]. The cut is at the beginning of a row, which is a
/// sentence or any other line of the input file. If no row begins within the piece, the cut is at a word. In half of
/// the draws, the beginning of a piece of another document replaces b; it is at most as long as b. If no other
/// document is found, b stays. Cut and choice are keyed by the seed and the draw, or with
/// MaskedLmOptions::static_masks as the masks are.
///
/// Batch: MaskedLm's, and `next_sentence_labels` [S]: 0 if b follows a, 1 if it does not, as in transformers. Counts:
/// `mlm`, `next_sentence` = S. The loss is the sum of both means, at the start of training about ln V + ln 2.
class NextSentence : public Objective {
 public:
  /// Copies the parts of the vocabulary that it needs. Throws InputError without [CLS], [SEP] or [MASK].
  NextSentence(const text::Tokenizer& tokenizer, const MaskedLmOptions& options);
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  /// An upper bound, as a piece of another document may be shorter.
  int64_t length(const data::Sample& sample) const override;
  std::optional<uint64_t> other_document_key(const data::Sample& sample) const override;
  /// Splits documents into the fewest pieces that fit a sequence of two segments.
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
