#pragma once
// Sentence-order prediction together with masked language modelling (ALBERT: Lan et al. 2019, section 3.1).

#include "funicular/objective/next_sentence.h"

namespace funicular::objective {

/// A piece of a document is cut in two as for NextSentence, and in half of the draws the two are swapped. Both are always
/// of the same document and next to each other: a piece of one row is cut at a word (ALBERT's own program puts a random
/// document there, and calls it swapped). A piece of one token cannot be cut: it is a single text, whose order is not
/// asked for. Cut and choice are keyed by the seed and the draw, or with static_masks as the masks are.
///
/// Batch: that of MaskedLm, and `sentence_order_labels` [S]: 0 in their order, 1 swapped (as transformers numbers them), -100
/// not asked for. Counts: `mlm`, `sentence_order`: sequences of two. The loss is the sum of both means: at the start of
/// training ln V + ln 2.
class SentenceOrder : public Objective {
 public:
  /// Copies what it needs of the vocabulary. Throws InputError without [CLS], [SEP] or [MASK].
  SentenceOrder(const text::Tokenizer& tokenizer, const MaskedLmOptions& options);
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override;
  /// Documents in the fewest pieces that fit a sequence of two texts.
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  /// pretraining_head("sentence_order").
  model::Head head() const override { return pretraining_head("sentence_order"); }
  /// perplexity (of the masked tokens) and sentence_order_accuracy.
  std::unique_ptr<Metrics> metrics() const override { return pretraining_metrics("sentence_order"); }
  LossOver loss_over() const override { return of_class<SentenceOrder>(); }
  std::map<std::string, std::string> identity() const override;

  /// The two segments of a sample as they stand in the sequence; one, where it cannot be cut.
  struct Pair {
    data::Sample sample;
    bool swapped = false;
    /// 0, 1 or -100.
    int64_t label() const { return sample.columns.size() < 2 ? -100 : swapped ? 1 : 0; }
  };
  Pair cut(const data::Sample& sample, uint64_t seed) const;
  /// The pair in reverse order.
  static Pair swap(Pair pair);

 private:
  MaskedLmOptions options_;
  text::SequenceTemplate sequence_;
  OwnStores own_stores_;
  TokenMasker masker_;  ///< copied for each batch
};

}  // namespace funicular::objective
