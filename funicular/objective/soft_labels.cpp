#include "funicular/objective/soft_labels.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"

namespace funicular::objective {

void SoftLabels::check(const char* component) const {
  if (!(temperature > 0 && std::isfinite(temperature)))
    throw InputError(component, "expected a temperature of shares above 0, found {}", temperature);
}

void SoftLabels::add(MicroBatch& batch, std::span<const data::Sample> samples, int64_t labels) const {
  const auto rows = static_cast<int64_t>(samples.size());
  if (windows || (weights && batch.packing.random.training)) {
    const at::Tensor all = at::empty({rows}, at::kDouble);
    for (int64_t row = 0; row < rows; ++row)
      all.data_ptr<double>()[row] = samples[static_cast<size_t>(row)].weight;
    batch.tensors[kRowWeights] = all;
  }
  if (!shares || samples.empty() || samples.front().shares.empty()) return;
  const at::Tensor all = at::empty({rows, labels}, at::kDouble);
  double* out = all.data_ptr<double>();
  for (const data::Sample& sample : samples) {
    if (std::ssize(sample.shares) != labels)
      throw InputError("labels", "sample {} has shares of {} labels; expected {}", sample.sample_id,
                       sample.shares.size(), labels);
    out = std::copy(sample.shares.begin(), sample.shares.end(), out);
  }
  batch.tensors[kShares] = all;
}

void SoftLabels::add_identity(std::map<std::string, std::string>& identity) const {
  if (shares) identity["soft_labels"] = fmt::format("shares at temperature {}", temperature);
  if (weights) identity["row_weights"] = "as the rows have them";
}

void output_rows(const Pass& pass, const at::Tensor& labels, const SoftLabels& soft) {
  pass.loss.output("labels", labels);
  if (soft.windows) pass.loss.output("samples", pass.batch.packing.sample_ids);
}

at::Tensor sum_of_rows(const at::Tensor& losses, const MicroBatch& batch) {
  const auto weights = batch.tensors.find(kRowWeights);
  if (weights == batch.tensors.end()) return losses.sum();
  return (losses * weights->second.to(losses.scalar_type())).sum();
}

namespace {

bool is_training(const MicroBatch& batch) {
  return batch.packing.random.training;
}

/// Flattens a distribution over classes by a temperature: softmax(log(shares) / temperature).
at::Tensor flattened(const at::Tensor& shares, double temperature) {
  return temperature == 1 ? shares : (shares.log() / temperature).softmax(-1);
}

}  // namespace

at::Tensor class_losses(const at::Tensor& logits, const MicroBatch& batch, const ClassLoss& loss,
                        const SoftLabels& soft) {
  const bool training = is_training(batch);
  const auto shares = batch.tensors.find(kShares);
  const at::Tensor scale =
      training && !loss.weights.empty()
          ? to_device(at::tensor(loss.weights, at::kDouble).to(logits.scalar_type()), logits.device())
          : at::Tensor();
  if (shares == batch.tensors.end())
    return at::cross_entropy_loss(logits, batch["labels"], scale, at::Reduction::None, /*ignore_index=*/-100,
                                  training ? loss.smoothing : 0);
  const double temperature = training ? soft.temperature : 1;
  const double smoothing = training ? loss.smoothing : 0;
  at::Tensor target = flattened(shares->second, temperature);
  if (smoothing > 0) target = target * (1 - smoothing) + smoothing / static_cast<double>(target.size(1));
  target = target.to(logits.options());
  if (scale.defined()) target = target * scale;
  return -(target * (logits / temperature).log_softmax(-1)).sum(-1) * (temperature * temperature);
}

double count_of_classes(std::span<const data::Sample> samples, std::span<const int64_t> classes,
                        const ClassLoss& loss, const SoftLabels& soft, bool training) {
  double count = 0;
  for (size_t row = 0; row < samples.size(); ++row) {
    const data::Sample& sample = samples[row];
    double mean = 1;
    if (training && !loss.weights.empty() && sample.shares.empty()) {
      mean = loss.weights[static_cast<size_t>(classes[row])];
    } else if (training && !loss.weights.empty()) {
      mean = 0;
      for (size_t label = 0; label < sample.shares.size(); ++label)
        mean += loss.weights[label] * sample.shares[label];
    }
    count += mean * soft.weight_of(sample, training);
  }
  return count;
}

at::Tensor label_losses(const at::Tensor& logits, const MicroBatch& batch, const SoftLabels& soft) {
  const auto shares = batch.tensors.find(kShares);
  const auto losses = [](const at::Tensor& scores, const at::Tensor& target) {
    return at::binary_cross_entropy_with_logits(scores, target, {}, {}, at::Reduction::None);
  };
  if (shares == batch.tensors.end()) return losses(logits, batch["labels"].to(logits.scalar_type())).sum(-1);
  const double temperature = is_training(batch) ? soft.temperature : 1;
  at::Tensor target = shares->second;
  const at::Tensor known = target.isnan().logical_not();
  if (temperature != 1) target = (target.logit() / temperature).sigmoid();
  target = target.nan_to_num(0).to(logits.options());
  return losses(logits / temperature, target).mul(known.to(logits.options())).sum(-1) *
         (temperature * temperature);
}

double count_of_labels(std::span<const data::Sample> samples, int64_t labels, const SoftLabels& soft,
                       bool training) {
  double count = 0;
  for (const data::Sample& sample : samples) {
    const auto known = sample.shares.empty() ? labels
                                             : std::count_if(sample.shares.begin(), sample.shares.end(),
                                                             [](double share) { return !std::isnan(share); });
    count += static_cast<double>(known) * soft.weight_of(sample, training);
  }
  return count;
}

}  // namespace funicular::objective
