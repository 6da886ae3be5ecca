#include "funicular/objective/classification.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cmath>

#include "funicular/base/error.h"
#include "funicular/data/datasets.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

Classification::Classification(const text::Tokenizer& tokenizer, const ClassificationOptions& options)
    : options_(options), sequence_(tokenizer.sequence()) {
  check_sequence_options(sequence_, options.sequence);
  const auto& weights = options.class_weights;
  if (has_own_loss() && options.regression)
    throw InputError("classification", "class weights and label smoothing are of classes, not of regression");
  if (!weights.empty() && weights.size() != static_cast<size_t>(options.num_labels))
    throw InputError("classification", "expected a weight for each of the {} classes, found {}", options.num_labels,
                     weights.size());
  for (const double weight : weights)
    if (!(weight > 0 && std::isfinite(weight)))
      throw InputError("classification", "expected class weights above 0, found {}", weight);
  if (!(options.label_smoothing >= 0 && options.label_smoothing < 1))
    throw InputError("classification", "expected a label smoothing of at least 0 and below 1, found {}",
                     options.label_smoothing);
}

model::Head Classification::head() const {
  if (!has_own_loss()) return model::Head::classification;
  return model::classifier([weights = options_.class_weights, smoothing = options_.label_smoothing](
                               const at::Tensor& logits, const Pass& pass) {
    const auto found = pass.batch.tensors.find("labels");
    if (found == pass.batch.tensors.end()) return;
    pass.loss.output("labels", found->second);
    const bool training = pass.batch.packing.random.training;
    const at::Tensor scale =
        training && !weights.empty() ? at::tensor(weights, at::kDouble).to(logits.options()) : at::Tensor();
    pass.loss.add("classification",
                  at::cross_entropy_loss(logits, found->second, scale, at::Reduction::Sum, /*ignore_index=*/-100,
                                         training ? smoothing : 0));
  });
}

std::shared_ptr<const data::Dataset> Classification::samples(
    std::shared_ptr<const data::TokenStore> store) const {
  return std::make_shared<data::RowDataset>(std::move(store));
}

std::unique_ptr<Metrics> Classification::metrics() const {
  if (options_.regression) return std::make_unique<RegressionMetrics>();
  return std::make_unique<ClassificationMetrics>(options_.metrics);
}

std::map<std::string, std::string> Classification::identity() const {
  std::map<std::string, std::string> all{
      {"sequence", fmt::format("at most {} tokens, {}", options_.sequence.max_length,
                               text::truncation_name(options_.sequence.truncation))}};
  if (!options_.class_weights.empty())
    all["class_weights"] = fmt::format("{}", fmt::join(options_.class_weights, ", "));
  if (options_.label_smoothing > 0) all["label_smoothing"] = fmt::format("{}", options_.label_smoothing);
  return all;
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
    double count = static_cast<double>(samples.size());
    if (random.training && !options_.class_weights.empty()) {
      count = 0;
      for (const int64_t label : classes) count += options_.class_weights[static_cast<size_t>(label)];
    }
    batch.counts[options_.regression ? "regression" : "classification"] = count;
  }
  return batch;
}

}  // namespace funicular::objective
