#include "funicular/data/other_document.h"

#include "funicular/base/random.h"
#include "funicular/data/joined_dataset.h"

namespace funicular::data {

Sample::Column draw_other_document(const Dataset& dataset, int64_t index, uint64_t key, uint64_t seed) {
  // Of the same corpus: one of another corpus would be told by its subject alone.
  if (const auto* joined = dynamic_cast<const JoinedDataset*>(&dataset)) {
    const auto [part, own] = joined->locate(index);
    return draw_other_document(*joined->parts()[part], own, key, seed);
  }
  constexpr uint32_t kTries = 16;
  const int64_t own = dataset.document_of(index);
  const RandomKey random = make_key(seed, Purpose::next_sentence);
  for (uint32_t tried = 0; tried < kTries; ++tried) {
    const RandomBlock block = philox(random, make_counter(1, tried, key));
    const auto chosen = static_cast<int64_t>(
        uniform_below((uint64_t{block[0]} << 32) | block[1], static_cast<uint64_t>(dataset.size())));
    if (dataset.document_of(chosen) != own) return dataset.get(chosen).columns[0];
  }
  return {};
}

}  // namespace funicular::data
