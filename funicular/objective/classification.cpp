#include "funicular/objective/classification.h"

#include <torch/types.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

Classification::Classification(const text::Tokenizer& tokenizer, const ClassificationOptions& options)
    : RowObjective(tokenizer, options.sequence,
                   options.labelled ? std::vector{data::LabelKind::classes, data::LabelKind::values,
                                                  data::LabelKind::shares}
                                    : std::vector<data::LabelKind>()),
      options_(options) {
  options.loss.check("classification", static_cast<size_t>(options.num_labels));
  options.soft.check("classification");
  options_.soft.windows = options.sequence.stride.has_value();
}

model::Head Classification::head() const {
  if (options_.soft.any()) return soft_head();
  if (options_.loss.is_plain()) return model::with_classes(model::Head::classification, options_.num_labels);
  const auto weighted = [loss = options_.loss](const at::Tensor& logits, const Pass& pass) {
    const auto found = pass.batch.tensors.find("labels");
    if (found == pass.batch.tensors.end()) return;
    pass.loss.output("labels", found->second);
    pass.loss.add("classification", loss.sum(logits, found->second, pass.batch.packing.random.training));
  };
  return model::with_classes(model::classifier(weighted), options_.num_labels);
}

model::Head Classification::soft_head() const {
  const auto add = [loss = options_.loss, soft = options_.soft](const at::Tensor& logits, const Pass& pass) {
    const auto found = pass.batch.tensors.find("labels");
    if (found == pass.batch.tensors.end()) return;
    output_rows(pass, found->second, soft);
    pass.loss.add("classification", sum_of_rows(class_losses(logits, pass.batch, loss, soft), pass.batch));
  };
  return model::with_classes(model::classifier(add), options_.num_labels);
}

Model Classification::build(model::ModelOptions encoder) const {
  const format::ModelConfig& config = encoder.config;
  if (model::is_regression(config))
    throw InputError("classification",
                     "the objective learns classes, but the configuration ({} labels, problem_type \"{}\") "
                     "describes a model of numbers. Set its num_labels to the number of classes, and its "
                     "problem_type to single_label_classification",
                     config.num_labels, config.problem_type);
  model::require_classes(config, options_.num_labels);
  return Objective::build(std::move(encoder));
}

std::unique_ptr<Metrics> Classification::metrics() const {
  return std::make_unique<ClassificationMetrics>(options_.metrics, options_.positive);
}

std::map<std::string, std::string> Classification::identity() const {
  std::map<std::string, std::string> all = RowObjective::identity();
  options_.loss.add_identity(all);
  options_.soft.add_identity(all);
  return all;
}

int64_t Classification::class_of(const data::Sample& sample) const {
  const auto label = static_cast<int64_t>(sample.label);
  if (static_cast<double>(label) != sample.label || label < 0 || label >= options_.num_labels)
    throw InputError("classification", "sample {} has the label {}; expected a class from 0 to {}",
                     sample.sample_id, sample.label, options_.num_labels - 1);
  return label;
}

MicroBatch Classification::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  MicroBatch batch = pack(samples).to_batch(random);
  if (!options_.labelled) return batch;
  std::vector<int64_t> classes;
  for (const data::Sample& sample : samples) classes.push_back(class_of(sample));
  batch.tensors["labels"] = at::tensor(classes, at::kLong);
  if (!options_.soft.any()) {
    batch.counts["classification"] = options_.loss.count(classes, random.training);
    return batch;
  }
  options_.soft.add(batch, samples, options_.num_labels);
  batch.counts["classification"] =
      count_of_classes(samples, classes, options_.loss, options_.soft, random.training);
  return batch;
}

}  // namespace funicular::objective
