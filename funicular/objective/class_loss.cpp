#include "funicular/objective/class_loss.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cmath>

#include "funicular/base/error.h"
#include "funicular/core/device_copy.h"

namespace funicular::objective {

void ClassLoss::check(const char* component, size_t classes) const {
  if (!weights.empty() && weights.size() != classes)
    throw InputError(component, "expected a weight for each of the {} classes, found {}", classes,
                     weights.size());
  for (const double weight : weights)
    if (!(weight > 0 && std::isfinite(weight)))
      throw InputError(component, "expected class weights above 0, found {}", weight);
  if (!(smoothing >= 0 && smoothing < 1))
    throw InputError(component, "expected a label smoothing of at least 0 and below 1, found {}", smoothing);
}

at::Tensor ClassLoss::sum(const at::Tensor& logits, const at::Tensor& labels, bool training) const {
  const at::Tensor scale =
      training && !weights.empty()
          ? to_device(at::tensor(weights, at::kDouble).to(logits.scalar_type()), logits.device())
          : at::Tensor();
  return at::cross_entropy_loss(logits, labels, scale, at::Reduction::Sum, /*ignore_index=*/-100,
                                training ? smoothing : 0);
}

double ClassLoss::count(std::span<const int64_t> labels, bool training) const {
  if (!training || weights.empty()) return static_cast<double>(labels.size());
  double count = 0;
  for (const int64_t label : labels) count += weights[static_cast<size_t>(label)];
  return count;
}

void ClassLoss::add_identity(std::map<std::string, std::string>& identity) const {
  if (!weights.empty()) identity["class_weights"] = fmt::format("{}", fmt::join(weights, ", "));
  if (smoothing > 0) identity["label_smoothing"] = fmt::format("{}", smoothing);
}

}  // namespace funicular::objective
