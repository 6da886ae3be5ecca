#pragma once
// Training of byte-pair encoding (Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
// algorithm 1). The most frequent pair of neighbours becomes a token. Equally frequent pairs come in the order of
// their ids, as in Hugging Face `tokenizers`.

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "funicular/text/bpe_merges.h"

namespace funicular::text {

/// Words as the ids of their first tokens.
struct SpelledWords {
  std::vector<int32_t> ids;     ///< of each word, then of the next one
  std::vector<size_t> ends;     ///< where each word ends in `ids`
  std::vector<uint64_t> times;  ///< how often each word stands in the text
  void add(std::span<const int32_t> word, uint64_t count);
};

struct MergeTrainingOptions {
  size_t size = 0;                     ///< of the vocabulary
  uint64_t min_frequency = 0;          ///< of a pair that becomes a token
  std::string continuing_prefix = "";  ///< that a token within a word begins with ("##"); a merge drops it
};

struct TrainedMerges {
  std::vector<std::string> tokens;  ///< the first ones, then what the merges made
  std::vector<Merge> merges;        ///< in their order
};

/// Merges pairs until there are `size` tokens or every pair is rarer than `min_frequency`. `tokens` are the first
/// tokens, all different; `words` are spelled by them. Takes memory for each pair of each word.
TrainedMerges train_merges(std::vector<std::string> tokens, SpelledWords words,
                           const MergeTrainingOptions& options);

}  // namespace funicular::text
