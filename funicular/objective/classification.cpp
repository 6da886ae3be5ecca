#include "funicular/objective/classification.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <utility>

#include "funicular/base/error.h"
#include "funicular/data/datasets.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

namespace {

std::vector<data::LabelKind> labels_read(const ClassificationOptions& options) {
  if (!options.labelled) return {};
  if (options.regression) return {data::LabelKind::values};
  return {data::LabelKind::classes, data::LabelKind::values};
}

}  // namespace

Classification::Classification(const text::Tokenizer& tokenizer, const ClassificationOptions& options)
    : options_(options), sequence_(tokenizer.sequence()), own_stores_(tokenizer, labels_read(options)) {
  check_sequence_options(sequence_, options.sequence);
  if (!options.loss.is_plain() && options.regression)
    throw InputError("classification", "class weights and label smoothing are of classes, not of regression");
  options.loss.check("classification", static_cast<size_t>(options.num_labels));
}

model::Head Classification::head() const {
  if (options_.regression) return model::Head::classification;
  if (options_.loss.is_plain()) return model::with_classes(model::Head::classification, options_.num_labels);
  const auto weighted = [loss = options_.loss](const at::Tensor& logits, const Pass& pass) {
    const auto found = pass.batch.tensors.find("labels");
    if (found == pass.batch.tensors.end()) return;
    pass.loss.output("labels", found->second);
    pass.loss.add("classification", loss.sum(logits, found->second, pass.batch.packing.random.training));
  };
  return model::with_classes(model::classifier(weighted), options_.num_labels);
}

Model Classification::build(model::ModelOptions encoder) const {
  const format::ModelConfig& config = encoder.config;
  if (options_.regression != model::is_regression(config))
    throw InputError(
        "classification",
        "the objective learns {}, and the configuration ({} labels, problem_type \"{}\") is that of a model "
        "of {}; set {}",
        options_.regression ? "numbers" : "classes", config.num_labels, config.problem_type,
        options_.regression ? "classes" : "numbers",
        options_.regression ? "num_labels of the configuration to 1 and problem_type to regression"
                            : "num_labels of the configuration to the number of classes, and problem_type to "
                              "single_label_classification");
  if (!options_.regression) model::require_classes(config, options_.num_labels);
  return Objective::build(std::move(encoder));
}

std::shared_ptr<const data::Dataset> Classification::samples(
    std::shared_ptr<const data::TokenStore> store) const {
  own_stores_.require(*store);
  return std::make_shared<data::RowDataset>(std::move(store));
}

std::unique_ptr<Metrics> Classification::metrics() const {
  if (options_.regression) return std::make_unique<RegressionMetrics>();
  return std::make_unique<ClassificationMetrics>(options_.metrics, options_.positive);
}

std::map<std::string, std::string> Classification::identity() const {
  std::map<std::string, std::string> all{
      {"sequence", fmt::format("at most {} tokens, {}", options_.sequence.max_length,
                               text::truncation_name(options_.sequence.truncation))}};
  options_.loss.add_identity(all);
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
    const double count = options_.regression ? static_cast<double>(samples.size())
                                             : options_.loss.count(classes, random.training);
    batch.counts[options_.regression ? "regression" : "classification"] = count;
  }
  return batch;
}

}  // namespace funicular::objective
