// A rule of one's own for what masked language modelling hides: the longest words first.
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "funicular/data/token_store_builder.h"
#include "funicular/objective/masked_lm.h"
#include "funicular/text/word_piece.h"

using namespace funicular;

class LongestWords : public objective::Selector {
 public:
  void select(const objective::MaskView& view, int64_t budget, const objective::MaskKey& key,
              std::vector<objective::Unit>& chosen) const override {
    std::vector<objective::Unit> words = objective::words_of(view);
    // Words of the same length come in an order that is keyed by their place: the same for any ranks and workers.
    std::stable_sort(words.begin(), words.end(), [&](const objective::Unit& a, const objective::Unit& b) {
      if (a.size() != b.size()) return a.size() > b.size();
      return objective::keyed_bits(key, Purpose::user, static_cast<size_t>(a.begin)) <
             objective::keyed_bits(key, Purpose::user, static_cast<size_t>(b.begin));
    });
    for (size_t i = 0; i < words.size() && budget > 0; budget -= words[i++].size())
      chosen.push_back(words[i]);
  }
};

int main() {
  const text::WordPiece tokenizer(
      {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "glass", "un", "##break", "##able"}, {}, {});
  const std::vector<data::MemorySource::Row> rows{{{"glass unbreakable glass glass"}, "", true}};
  const fs::path path =
      fs::temp_directory_path() / ("longest_words_" + std::to_string(::getpid()) + ".tokens");
  data::build_token_store(tokenizer, data::MemorySource(rows, 1, false), path);

  objective::MaskedLmOptions options;
  options.probability = 0.5;  // three of six tokens
  options.selector = std::make_shared<LongestWords>();
  options.rules_name = "the longest words first";
  const objective::MaskedLm objective(tokenizer, options);
  const auto dataset = objective.samples(data::TokenStore::open(path));
  const std::vector<data::Sample> samples{
      dataset->get(0)};  // a view of the store, which the data set keeps open
  const MicroBatch batch = objective.collate(samples, {.seed = 1, .training = true});
  fs::remove_all(path);
  const bool right = at::equal(batch["mlm_labels"], torch::tensor({6, 7, 8}, torch::kLong));
  std::puts(right ? "hidden: unbreakable" : "other words are hidden");
  return right ? 0 : 1;
}
