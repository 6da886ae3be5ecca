#include "funicular/objective/masked_lm.h"

#include "funicular/data/datasets.h"
#include "funicular/data/sentences.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

MaskedLm::MaskedLm(const text::Tokenizer& tokenizer, const MaskedLmOptions& options)
    : options_(options),
      sequence_(tokenizer.sequence()),
      own_stores_(tokenizer, {}),
      masker_(tokenizer, options) {
  check_sequence_options(sequence_, options.sequence);
}

std::shared_ptr<const data::Dataset> MaskedLm::samples(std::shared_ptr<const data::TokenStore> store) const {
  own_stores_.require(*store);
  const int64_t length = text_length(sequence_, options_.sequence, 1);
  if (options_.pack == PackSentences::none)
    return std::make_shared<data::ChunkDataset>(std::move(store), length);
  return std::make_shared<data::SentencesDataset>(std::move(store), length,
                                                  options_.pack == PackSentences::across);
}

std::unique_ptr<Metrics> MaskedLm::metrics() const {
  return std::make_unique<LanguageModelMetrics>();
}

std::map<std::string, std::string> MaskedLm::identity() const {
  return {{"objective", "mlm, " + TokenMasker::describe(options_)}};
}

int64_t MaskedLm::length(const data::Sample& sample) const {
  return sequence_length(sample, sequence_, options_.sequence);
}

MicroBatch MaskedLm::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  TokenMasker masker = masker_;
  for (const data::Sample& sample : samples) {
    const size_t begin = packed.token_ids.size();
    packed.add(sample, sequence_, options_.sequence);
    masker.mask(packed, begin, sample, random.seed);
  }
  MicroBatch batch = packed.to_batch(random);
  masker.finish(batch);
  return batch;
}

}  // namespace funicular::objective
