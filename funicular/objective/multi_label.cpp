#include "funicular/objective/multi_label.h"

#include <torch/types.h>

#include "funicular/base/error.h"
#include "funicular/objective/metrics.h"

namespace funicular::objective {

MultiLabel::MultiLabel(const text::Tokenizer& tokenizer, const MultiLabelOptions& options)
    : RowObjective(tokenizer, options.sequence,
                   options.labelled ? std::vector{data::LabelKind::sets, data::LabelKind::set_shares}
                                    : std::vector<data::LabelKind>()),
      options_(options) {
  options.soft.check("multi-label");
  options_.soft.windows = options.sequence.stride.has_value();
  const auto& thresholds = options.thresholds;
  if (!thresholds.empty() && thresholds.size() != static_cast<size_t>(options.num_labels))
    throw InputError("multi-label", "expected a threshold for each of the {} labels, found {}",
                     options.num_labels, thresholds.size());
  for (const double threshold : thresholds)
    if (!(threshold >= 0 && threshold <= 1))
      throw InputError("multi-label", "expected thresholds from 0 to 1, found {}", threshold);
}

MicroBatch MultiLabel::collate(std::span<const data::Sample> samples, const RandomState& random) const {
  MicroBatch batch = pack(samples).to_batch(random);
  if (!options_.labelled) return batch;
  const auto rows = static_cast<int64_t>(samples.size());
  const at::Tensor labels = at::zeros({rows, options_.num_labels}, at::kDouble);
  for (int64_t row = 0; row < rows; ++row)
    for (const int32_t label : samples[static_cast<size_t>(row)].label_set) {
      if (label < 0 || label >= options_.num_labels)
        throw InputError("multi-label", "sample {} has the label {}; expected classes from 0 to {}",
                         samples[static_cast<size_t>(row)].sample_id, label, options_.num_labels - 1);
      labels.data_ptr<double>()[row * options_.num_labels + label] = 1;
    }
  batch.tensors["labels"] = labels;
  options_.soft.add(batch, samples, options_.num_labels);
  if (batch.tensors.contains(kShares)) batch.tensors["labels"] = batch.tensors[kShares];
  batch.counts["multi_label"] = count_of_labels(samples, options_.num_labels, options_.soft, random.training);
  return batch;
}

model::Head MultiLabel::loss_of_all_labels(const SoftLabels& soft) {
  return model::classifier([soft](const at::Tensor& logits, const Pass& pass) {
    const auto found = pass.batch.tensors.find("labels");
    if (found == pass.batch.tensors.end()) return;
    output_rows(pass, found->second, soft);
    if (soft.any()) {
      pass.loss.add("multi_label", sum_of_rows(label_losses(logits, pass.batch, soft), pass.batch));
      return;
    }
    pass.loss.add("multi_label",
                  at::binary_cross_entropy_with_logits(logits, found->second.to(logits.scalar_type()), {}, {},
                                                       at::Reduction::Sum));
  });
}

std::unique_ptr<Metrics> MultiLabel::metrics() const {
  return std::make_unique<MultiLabelMetrics>(options_.thresholds);
}

std::map<std::string, std::string> MultiLabel::identity() const {
  std::map<std::string, std::string> all = RowObjective::identity();
  all["objective"] = "multi-label";
  options_.soft.add_identity(all);
  return all;
}

bool is_multi_label(const format::ModelConfig& config) {
  return config.problem_type == "multi_label_classification";
}

std::vector<double> thresholds_in(const Json& note, int64_t labels) {
  constexpr const char* kOrigin = "config.json (key \"funicular\")";
  if (!note.is_object() || !note.contains(kThresholds)) return {};
  const auto thresholds = json_get<std::vector<double>>(note, kThresholds, kOrigin);
  if (std::ssize(thresholds) != labels)
    throw InputError("config", "{}: expected {} thresholds, one a label, found {}", kOrigin, labels,
                     thresholds.size());
  return thresholds;
}

}  // namespace funicular::objective
