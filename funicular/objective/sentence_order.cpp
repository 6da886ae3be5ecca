#include "funicular/objective/sentence_order.h"

#include <torch/types.h>

#include <utility>

#include "funicular/data/datasets.h"

namespace funicular::objective {

SentenceOrder::SentenceOrder(const text::Tokenizer& tokenizer, const MaskedLmOptions& options)
    : options_(options),
      sequence_(tokenizer.sequence()),
      own_stores_(tokenizer, {}),
      masker_(tokenizer, options) {
  check_sequence_options(sequence_, options.sequence);
  require_pairs(options);
}

std::shared_ptr<const data::Dataset> SentenceOrder::samples(
    std::shared_ptr<const data::TokenStore> store) const {
  own_stores_.require(*store);
  return std::make_shared<data::ChunkDataset>(std::move(store), text_length(sequence_, options_.sequence, 2));
}

int64_t SentenceOrder::length(const data::Sample& sample) const {
  const auto tokens = static_cast<int64_t>(sample.columns[0].tokens.size());
  return tokens + sequence_.special_count(tokens < 2 ? 1 : 2);
}

SentenceOrder::Pair SentenceOrder::swap(Pair pair) {
  std::swap(pair.sample.columns[0], pair.sample.columns[1]);
  pair.swapped = !pair.swapped;
  return pair;
}

SentenceOrder::Pair SentenceOrder::cut(const data::Sample& sample, uint64_t seed) const {
  const data::Sample::Column& whole = sample.columns[0];
  Pair pair{sample};
  if (whole.tokens.size() < 2) return pair;
  const auto [place, coin] = cut_in_two(sample, TokenMasker::key_of(sample, options_), seed);
  pair.sample.columns = {part_of(whole, 0, place), part_of(whole, place, whole.tokens.size())};
  return coin ? swap(std::move(pair)) : pair;
}

MicroBatch SentenceOrder::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  TokenMasker masker = masker_;
  std::vector<int64_t> labels;
  double pairs = 0;
  for (const data::Sample& sample : samples) {
    const size_t begin = packed.token_ids.size();
    const Pair pair = cut(sample, random.seed);
    packed.add(pair.sample, sequence_, options_.sequence);
    masker.mask(packed, begin, sample, random.seed);
    labels.push_back(pair.label());
    pairs += pair.label() >= 0;
  }
  MicroBatch batch = packed.to_batch(random);
  masker.finish(batch);
  batch.tensors["sentence_order_labels"] = at::tensor(labels, at::kLong);
  batch.counts["sentence_order"] = pairs;
  return batch;
}

std::map<std::string, std::string> SentenceOrder::identity() const {
  return {{"objective", "mlm and sentence order, " + TokenMasker::describe(options_)}};
}

}  // namespace funicular::objective
