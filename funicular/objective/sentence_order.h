#pragma once
// Sentence-order prediction together with masked language modelling (ALBERT: Lan et al. 2019, section 3.1).

#include "funicular/objective/next_sentence.h"

namespace funicular::objective {

/// A piece of a document is cut in two as for NextSentence, and in half of the draws both parts are swapped. The
/// parts are always neighbours in one document: a piece of one row is cut at a word. ALBERT's own program takes a
/// random document for such a piece instead and labels it as swapped. A piece of one token cannot be cut: it stays a
/// single text without an order to predict. Cut and choice are keyed by the seed and the draw, or with static_masks
/// as the masks are.
///
/// Batch: MaskedLm's, and `sentence_order_labels` [S]: 0 in order, 1 swapped (as in transformers), -100 for a single
/// text. Counts: `mlm`, and `sentence_order`, the sequences of two texts. The loss is the sum of both means, at the
/// start of training about ln V + ln 2.
class SentenceOrder : public Objective {
 public:
  /// Copies the parts of the vocabulary that it needs. Throws InputError without [CLS], [SEP] or [MASK].
  SentenceOrder(const text::Tokenizer& tokenizer, const MaskedLmOptions& options);
  MicroBatch collate(std::span<const data::Sample> samples, const RandomState& random) const override;
  int64_t length(const data::Sample& sample) const override;
  /// Splits documents into the fewest pieces that fit a sequence of two texts.
  std::shared_ptr<const data::Dataset> samples(std::shared_ptr<const data::TokenStore> store) const override;
  /// pretraining_head("sentence_order").
  model::Head head() const override { return pretraining_head("sentence_order"); }
  /// perplexity (of the masked tokens) and sentence_order_accuracy.
  std::unique_ptr<Metrics> metrics() const override { return pretraining_metrics("sentence_order"); }
  LossOver loss_over() const override { return of_class<SentenceOrder>(); }
  std::map<std::string, std::string> identity() const override;

  /// The two segments of a sample in the order of the sequence; one segment if the sample cannot be cut.
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
