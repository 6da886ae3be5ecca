#include "funicular/objective/token_masker.h"

#include <torch/types.h>

#include <algorithm>

namespace funicular::objective {

namespace {

/// The maskable tokens of a sequence. Special tokens within the text itself are left out, unless the text has only
/// special tokens.
struct Maskable {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> word_starts, text_starts, row_starts;
  std::vector<size_t> places;  ///< in the packed batch

  Maskable(const PackedSequences& packed, size_t begin, const text::SpecialTokens& special) {
    add(packed, begin, [&](int64_t id) {
      return id == special.cls || id == special.sep || id == special.mask || id == special.pad;
    });
    if (tokens.empty()) add(packed, begin, [](int64_t) { return false; });
  }

  template <class IsSpecial>
  void add(const PackedSequences& packed, size_t begin, const IsSpecial& is_special) {
    for (size_t i = begin; i < packed.token_ids.size(); ++i) {
      if (!packed.maskable[i] || is_special(packed.token_ids[i])) continue;
      tokens.push_back(static_cast<int32_t>(packed.token_ids[i]));
      word_starts.push_back(packed.word_starts[i]);
      text_starts.push_back(places.empty() || places.back() + 1 != i);
      row_starts.push_back(packed.row_starts[i]);
      places.push_back(i);
    }
  }
  MaskView view() const { return {tokens, word_starts, text_starts, row_starts}; }
};

}  // namespace

uint64_t TokenMasker::key_of(const data::Sample& sample, const MaskedLmOptions& options) {
  if (options.static_masks == 0) return static_cast<uint64_t>(sample.draw_id);
  return static_cast<uint64_t>(sample.sample_id * options.static_masks + sample.epoch % options.static_masks);
}

TokenMasker::TokenMasker(const text::Tokenizer& tokenizer, const MaskedLmOptions& options)
    : options_(options), special_(tokenizer.special()) {
  check_masking(options);
  if (!options.word_dictionary.empty())
    chinese_words_ = std::make_shared<const ChineseWords>(tokenizer, options.word_dictionary);
  else if (options.masking != Masking::token)
    warn_of_sentences_as_words(tokenizer);
  selector_ = make_selector(tokenizer, options);
  replacer_ = make_replacer(tokenizer, options);
}

void TokenMasker::mask(PackedSequences& packed, size_t begin, const data::Sample& sample, uint64_t seed) {
  Maskable text(packed, begin, special_);
  if (text.tokens.empty()) return;
  if (chinese_words_) chinese_words_->mark(text.view(), text.word_starts);
  const MaskView view = text.view();
  const MaskKey key{seed, key_of(sample, options_)};
  const int64_t budget = mask_budget(static_cast<int64_t>(text.tokens.size()),
                                     static_cast<int64_t>(packed.token_ids.size() - begin), options_);
  std::vector<Unit> chosen;
  selector_->select(view, budget, key, chosen);
  std::sort(chosen.begin(), chosen.end(), [](const Unit& a, const Unit& b) { return a.begin < b.begin; });
  std::vector<int32_t> shown = text.tokens;
  ReplacementReport report;
  replacer_->replace(view, chosen, key, shown, options_.observer ? &report : nullptr);
  if (options_.observer) options_.observer({sample, view, text.places, chosen, shown, report});
  for (const Unit& unit : chosen)
    for (auto place = static_cast<size_t>(unit.begin); place < static_cast<size_t>(unit.end); ++place) {
      rows_.push_back(static_cast<int64_t>(text.places[place]));
      labels_.push_back(text.tokens[place]);
      packed.token_ids[text.places[place]] = shown[place];
    }
}

void TokenMasker::finish(MicroBatch& batch) {
  batch.tensors["mlm_rows"] = at::tensor(rows_, at::kLong);
  batch.tensors["mlm_labels"] = at::tensor(labels_, at::kLong);
  batch.counts["mlm"] = static_cast<double>(labels_.size());
  rows_.clear();
  labels_.clear();
}

}  // namespace funicular::objective
