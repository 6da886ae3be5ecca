#include "funicular/data/other_document.h"

#include <algorithm>
#include <utility>

#include "funicular/base/random.h"
#include "funicular/data/joined_dataset.h"

namespace funicular::data {

namespace {

/// Returns the samples [begin, end) of the document of sample `index`; samples of a document are consecutive.
std::pair<int64_t, int64_t> samples_of_document(const Dataset& dataset, int64_t index) {
  const int64_t own = dataset.document_of(index);
  int64_t begin = index, before = -1;  // `before` lies in another document, `begin` in this one
  while (begin - before > 1) {
    const int64_t middle = before + (begin - before) / 2;
    (dataset.document_of(middle) == own ? begin : before) = middle;
  }
  int64_t last = index, end = dataset.size();
  while (end - last > 1) {
    const int64_t middle = last + (end - last) / 2;
    (dataset.document_of(middle) == own ? last : end) = middle;
  }
  return {begin, end};
}

}  // namespace

Sample::Column draw_other_document(const Dataset& dataset, int64_t index, uint64_t key, uint64_t seed) {
  // Draws from the same corpus: its subject alone would give away a text of another corpus.
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
  // Nearly all samples belong to this document, so draw among the samples before and after it.
  const auto [begin, end] = samples_of_document(dataset, index);
  const int64_t others = dataset.size() - (end - begin);
  if (others == 0) return {};
  const RandomBlock block = philox(random, make_counter(1, kTries, key));
  const auto chosen = static_cast<int64_t>(
      uniform_below((uint64_t{block[0]} << 32) | block[1], static_cast<uint64_t>(others)));
  return dataset.get(chosen < begin ? chosen : chosen + (end - begin)).columns[0];
}

bool has_several_documents(const Dataset& samples) {
  if (const auto* joined = dynamic_cast<const JoinedDataset*>(&samples))
    return std::all_of(joined->parts().begin(), joined->parts().end(),
                       [](const auto& part) { return has_several_documents(*part); });
  return samples.size() > 0 && samples.document_of(0) != samples.document_of(samples.size() - 1);
}

}  // namespace funicular::data
