#include "funicular/objective/masked_lm.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/data/datasets.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

MaskedLm::MaskedLm(const text::WordPiece& tokenizer, const MaskedLmOptions& options)
    : options_(options), special_(tokenizer.special()) {
  check_sequence_options(special_, options.sequence);
  if (!(options.probability > 0 && options.probability < 1))
    throw InputError("mlm", "expected a masking probability between 0 and 1, found {}", options.probability);
  if (options.whole_words)
    selector_ = std::make_unique<WholeWordSelector>();
  else
    selector_ = std::make_unique<TokenSelector>();
  replacer_ = std::make_unique<BertReplacer>(special_.mask, tokenizer.size(), options.mask_share,
                                             options.random_share);
}

std::shared_ptr<const data::Dataset> MaskedLm::samples(std::shared_ptr<const data::TokenStore> store) const {
  return std::make_shared<data::ChunkDataset>(std::move(store), text_length(options_.sequence, 1));
}

std::unique_ptr<Metrics> MaskedLm::metrics() const {
  return std::make_unique<LanguageModelMetrics>();
}

std::map<std::string, std::string> MaskedLm::identity() const {
  return {{"objective",
           fmt::format("mlm, probability {}, {}, at most {} tokens", options_.probability,
                       options_.whole_words ? "whole words" : "tokens", options_.sequence.max_length)}};
}

int64_t MaskedLm::length(const data::Sample& sample) const {
  return sequence_length(sample, options_.sequence);
}

MicroBatch MaskedLm::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  std::vector<int64_t> rows, labels;
  std::vector<int32_t> tokens, shown;
  std::vector<uint8_t> starts;
  std::vector<size_t> places;
  std::vector<Unit> chosen;
  for (const data::Sample& sample : samples) {
    const size_t begin = packed.token_ids.size();
    packed.add(sample, special_, options_.sequence);
    tokens.clear();
    starts.clear();
    places.clear();
    chosen.clear();
    for (size_t i = begin; i < packed.token_ids.size(); ++i) {
      if (!packed.maskable[i]) continue;
      tokens.push_back(static_cast<int32_t>(packed.token_ids[i]));
      starts.push_back(packed.word_starts[i]);
      places.push_back(i);
    }
    if (tokens.empty()) continue;
    const MaskView view{tokens, starts};
    const MaskKey key{random.seed, static_cast<uint64_t>(sample.draw_id)};
    const auto budget =
        std::max<int64_t>(1, std::llround(options_.probability * static_cast<double>(tokens.size())));
    selector_->select(view, budget, key, chosen);
    std::sort(chosen.begin(), chosen.end(), [](const Unit& a, const Unit& b) { return a.begin < b.begin; });
    shown = tokens;
    replacer_->replace(view, chosen, key, shown);
    for (const Unit& unit : chosen)
      for (int32_t i = unit.begin; i < unit.end; ++i) {
        const auto place = static_cast<size_t>(i);
        rows.push_back(static_cast<int64_t>(places[place]));
        labels.push_back(tokens[place]);
        packed.token_ids[places[place]] = shown[place];
      }
  }
  MicroBatch batch = packed.to_batch(random);
  batch.tensors["mlm_rows"] = at::tensor(rows, at::kLong);
  batch.tensors["mlm_labels"] = at::tensor(labels, at::kLong);
  batch.counts["mlm"] = static_cast<double>(labels.size());
  return batch;
}

}  // namespace funicular::objective
