#include "funicular/objective/regression.h"

#include <torch/types.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

Regression::Regression(const text::Tokenizer& tokenizer, const RegressionOptions& options)
    : RowObjective(tokenizer, options.sequence,
                   options.labelled ? std::vector{data::LabelKind::values} : std::vector<data::LabelKind>()),
      labelled_(options.labelled) {}

Model Regression::build(model::ModelOptions encoder) const {
  const format::ModelConfig& config = encoder.config;
  if (!model::is_regression(config))
    throw InputError(
        "regression",
        "the objective learns numbers, and the configuration ({} labels, problem_type \"{}\") is "
        "that of a model of classes; set num_labels of the configuration to 1 and problem_type "
        "to regression",
        config.num_labels, config.problem_type);
  return Objective::build(std::move(encoder));
}

std::unique_ptr<Metrics> Regression::metrics() const {
  return std::make_unique<RegressionMetrics>();
}

MicroBatch Regression::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  MicroBatch batch = pack(samples).to_batch(random);
  if (!labelled_) return batch;
  std::vector<double> targets;
  for (const data::Sample& sample : samples) targets.push_back(sample.label);
  batch.tensors["labels"] = at::tensor(targets, at::kDouble);
  batch.counts["regression"] = static_cast<double>(samples.size());
  return batch;
}

}  // namespace funicular::objective
