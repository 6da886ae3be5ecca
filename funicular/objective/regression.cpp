#include "funicular/objective/regression.h"

#include <torch/types.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

Regression::Regression(const text::Tokenizer& tokenizer, const RegressionOptions& options)
    : RowObjective(tokenizer, options.sequence,
                   options.labelled ? std::vector{data::LabelKind::values} : std::vector<data::LabelKind>()),
      labelled_(options.labelled),
      soft_(options.soft) {
  soft_.windows = options.sequence.stride.has_value();
}

model::Head Regression::head() const {
  if (!soft_.any()) return model::Head::classification;
  return model::classifier([soft = soft_](const at::Tensor& logits, const Pass& pass) {
    const auto found = pass.batch.tensors.find("labels");
    if (found == pass.batch.tensors.end()) return;
    output_rows(pass, found->second, soft);
    const at::Tensor losses =
        at::mse_loss(logits.squeeze(1), found->second.to(logits.scalar_type()), at::Reduction::None);
    pass.loss.add("regression", sum_of_rows(losses, pass.batch));
  });
}

std::map<std::string, std::string> Regression::identity() const {
  std::map<std::string, std::string> all = RowObjective::identity();
  soft_.add_identity(all);
  return all;
}

Model Regression::build(model::ModelOptions encoder) const {
  const format::ModelConfig& config = encoder.config;
  if (!model::is_regression(config))
    throw InputError(
        "regression",
        "the objective learns numbers, but the configuration ({} labels, problem_type \"{}\") describes a "
        "model of classes. Set its num_labels to 1 and its problem_type to regression",
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
  soft_.add(batch, samples, 1);
  double count = 0;
  for (const data::Sample& sample : samples) count += soft_.weight_of(sample, random.training);
  batch.counts["regression"] = count;
  return batch;
}

}  // namespace funicular::objective
