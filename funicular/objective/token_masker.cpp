#include "funicular/objective/token_masker.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "funicular/base/error.h"

namespace funicular::objective {

uint64_t TokenMasker::key_of(const data::Sample& sample, const MaskedLmOptions& options) {
  if (options.static_masks == 0) return static_cast<uint64_t>(sample.draw_id);
  return static_cast<uint64_t>(sample.sample_id * options.static_masks + sample.epoch % options.static_masks);
}

TokenMasker::TokenMasker(const text::Tokenizer& tokenizer, const MaskedLmOptions& options)
    : options_(options) {
  if (!(options.probability > 0 && options.probability < 1))
    throw InputError("mlm", "expected a masking probability between 0 and 1, found {}", options.probability);
  if (options.static_masks < 0)
    throw InputError("mlm", "expected a number of static masks of at least 0, found {}",
                     options.static_masks);
  if (options.whole_words)
    selector_ = std::make_shared<WholeWordSelector>();
  else
    selector_ = std::make_shared<TokenSelector>();
  replacer_ = std::make_shared<BertReplacer>(tokenizer.special().mask, tokenizer.size(), options.mask_share,
                                             options.random_share);
}

void TokenMasker::mask(PackedSequences& packed, size_t begin, const data::Sample& sample, uint64_t seed) {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> starts;
  std::vector<size_t> places;
  for (size_t i = begin; i < packed.token_ids.size(); ++i) {
    if (!packed.maskable[i]) continue;
    tokens.push_back(static_cast<int32_t>(packed.token_ids[i]));
    starts.push_back(packed.word_starts[i]);
    places.push_back(i);
  }
  if (tokens.empty()) return;
  const MaskView view{tokens, starts};
  const MaskKey key{seed, key_of(sample, options_)};
  const auto budget =
      std::max<int64_t>(1, std::llround(options_.probability * static_cast<double>(tokens.size())));
  std::vector<Unit> chosen;
  selector_->select(view, budget, key, chosen);
  std::sort(chosen.begin(), chosen.end(), [](const Unit& a, const Unit& b) { return a.begin < b.begin; });
  std::vector<int32_t> shown = tokens;
  replacer_->replace(view, chosen, key, shown);
  for (const Unit& unit : chosen)
    for (auto place = static_cast<size_t>(unit.begin); place < static_cast<size_t>(unit.end); ++place) {
      rows_.push_back(static_cast<int64_t>(places[place]));
      labels_.push_back(tokens[place]);
      packed.token_ids[places[place]] = shown[place];
    }
}

void TokenMasker::finish(MicroBatch& batch) {
  batch.tensors["mlm_rows"] = at::tensor(rows_, at::kLong);
  batch.tensors["mlm_labels"] = at::tensor(labels_, at::kLong);
  batch.counts["mlm"] = static_cast<double>(labels_.size());
  rows_.clear();
  labels_.clear();
}

std::string TokenMasker::describe(const MaskedLmOptions& options) {
  std::string text = fmt::format("probability {}, {}, at most {} tokens", options.probability,
                                 options.whole_words ? "whole words" : "tokens", options.sequence.max_length);
  if (options.static_masks > 0) text += fmt::format(", {} static masks", options.static_masks);
  return text;
}

}  // namespace funicular::objective
