#include "funicular/objective/text_rows.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "funicular/data/datasets.h"
#include "funicular/model/pooling.h"

namespace funicular::objective {

TextRows::TextRows(text::SequenceTemplate form, const SequenceOptions& sequence, model::Head head,
                   int64_t prompt_tokens)
    : form_(std::move(form)), sequence_(sequence), head_(std::move(head)), prompt_tokens_(prompt_tokens) {
  check_sequence_options(form_, sequence_);
}

std::shared_ptr<const data::Dataset> TextRows::samples(std::shared_ptr<const data::TokenStore> store) const {
  return std::make_shared<data::RowDataset>(std::move(store));
}

int64_t TextRows::length(const data::Sample& sample) const {
  return sequence_length(sample, form_, sequence_);
}

MicroBatch TextRows::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  for (const data::Sample& sample : samples) packed.add(sample, form_, sequence_);
  MicroBatch batch = packed.to_batch(random);
  batch.counts["samples"] = static_cast<double>(samples.size());
  if (prompt_tokens_ > 0) {
    std::vector<int64_t> left_out;
    for (const int32_t length : packed.lengths)
      left_out.push_back(std::min<int64_t>(prompt_tokens_, length - 1));
    batch.tensors[model::kPromptTokens] = at::tensor(left_out, at::kLong);
  }
  return batch;
}

}  // namespace funicular::objective
