#include "funicular/parallel/weight_versions.h"

#include <utility>

#include "funicular/base/error.h"

namespace funicular::parallel {

WeightVersions::WeightVersions(std::vector<Weight> weights, at::Tensor matrices, at::Tensor vectors)
    : weights_(std::move(weights)), matrices_(std::move(matrices)), vectors_(std::move(vectors)) {}

void WeightVersions::restart() {
  if (shown_ != newest_) point(matrices_, vectors_);
  kept_.clear();
  newest_ = shown_ = 0;
}

void WeightVersions::show(int version) {
  if (version == shown_) return;
  if (version == newest_) {
    point(matrices_, vectors_);
  } else {
    const auto found = kept_.find(version);
    if (found == kept_.end())
      throw RunError("pipeline", "version {} of the weights is no longer kept; the newest is {}", version,
                     newest_);
    point(found->second.matrices, found->second.vectors);
  }
  shown_ = version;
}

void WeightVersions::start_update(bool is_needed) {
  show(newest_);
  if (is_needed) {
    kept_[newest_] = {matrices_.detach(), vectors_.detach()};
    matrices_.set_data(matrices_.clone());
    vectors_.set_data(vectors_.clone());
    point(matrices_, vectors_);
  }
  shown_ = ++newest_;
}

const at::Tensor& WeightVersions::matrices() const {
  return shown_ == newest_ ? matrices_ : kept_.at(shown_).matrices;
}

int64_t WeightVersions::kept_bytes() const {
  int64_t bytes = 0;
  for (const auto& [version, copy] : kept_)
    bytes += static_cast<int64_t>(copy.matrices.nbytes() + copy.vectors.nbytes());
  return bytes;
}

void WeightVersions::point(const at::Tensor& matrices, const at::Tensor& vectors) const {
  for (const Weight& weight : weights_) {
    at::Tensor& shown = weight.parameter->compute;
    const at::Tensor& flat = weight.matrix ? matrices : vectors;
    shown.set_data(flat.narrow(0, weight.begin, shown.numel()).view(shown.sizes()));
  }
}

}  // namespace funicular::parallel
