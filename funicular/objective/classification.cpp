#include "funicular/objective/classification.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "funicular/base/error.h"
#include "funicular/data/datasets.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

Classification::Classification(const text::Tokenizer& tokenizer, const ClassificationOptions& options)
    : options_(options), sequence_(tokenizer.sequence()) {
  check_sequence_options(sequence_, options.sequence);
}

std::shared_ptr<const data::Dataset> Classification::samples(
    std::shared_ptr<const data::TokenStore> store) const {
  return std::make_shared<data::RowDataset>(std::move(store));
}

std::unique_ptr<Metrics> Classification::metrics() const {
  return std::make_unique<ClassificationMetrics>(options_.metrics);
}

std::map<std::string, std::string> Classification::identity() const {
  return {{"sequence", fmt::format("at most {} tokens, {}", options_.sequence.max_length,
                                   text::truncation_name(options_.sequence.truncation))}};
}

int64_t Classification::length(const data::Sample& sample) const {
  return sequence_length(sample, sequence_, options_.sequence);
}

MicroBatch Classification::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  PackedSequences packed;
  std::vector<double> targets;
  std::vector<int64_t> classes;
  for (const data::Sample& sample : samples) {
    packed.add(sample, sequence_, options_.sequence);
    if (!options_.labelled) continue;
    targets.push_back(sample.label);
    if (options_.regression) continue;
    const auto label = static_cast<int64_t>(sample.label);
    if (static_cast<double>(label) != sample.label || label < 0 || label >= options_.num_labels)
      throw InputError("classification", "sample {} has the label {}; expected a class from 0 to {}",
                       sample.sample_id, sample.label, options_.num_labels - 1);
    classes.push_back(label);
  }
  MicroBatch batch = packed.to_batch(random);
  if (options_.labelled) {
    batch.tensors["labels"] =
        options_.regression ? at::tensor(targets, at::kDouble) : at::tensor(classes, at::kLong);
    batch.counts[options_.regression ? "regression" : "classification"] = static_cast<double>(samples.size());
  }
  return batch;
}

}  // namespace funicular::objective
