#include "funicular/parallel/shared_versions.h"

#include <ATen/ops/empty_like.h>

#include <numeric>
#include <utility>

namespace funicular::parallel {

SharedVersions::SharedVersions(const SharedWeights& weights, const PipelineRanks& ranks,
                               SharedWeights::Wait wait)
    : weights_(weights), ranks_(ranks), wait_(std::move(wait)) {
  std::vector<int> all(static_cast<size_t>(ranks.size()));
  std::iota(all.begin(), all.end(), 0);
  messages_ = ranks.messages().subgroup(all);
  for (const SharedWeight& each : weights.all())
    if (each.used_by(ranks.home()))
      weights.exchange(each, [&](int, int owner) { copies_.push_back({&each, owner}); });
}

void SharedVersions::restart() {
  for (Copy& copy : copies_) {
    const at::Tensor value = weights_.value_of(*copy.shared);
    copy.versions = {{0, weights_.is_in_pieces(*copy.shared) ? value.clone() : value}};
    copy.shown = 0;
  }
  received_.clear();
  making_ = heard_ = 0;
}

void SharedVersions::show(const VersionPlan& plan, int micro_batch) {
  for (Copy& copy : copies_) {
    const int version = plan.version_of.at(copy.shared->owner).at(micro_batch);
    receive(copy.shared->owner, version);
    show(copy, version);
  }
}

void SharedVersions::show(Copy& copy, int version) const {
  const at::Tensor& wanted = copy.versions.at(version);
  if (!weights_.is_in_pieces(*copy.shared))
    copy.shared->parameter->compute.set_data(wanted);
  else if (copy.shown != version)
    weights_.value_of(*copy.shared).copy_(wanted);
  copy.shown = version;
}

/// Receives in the order in which the owner sends: all weights of a version, then all weights of the next version.
void SharedVersions::receive(int owner, int version) {
  int& received = received_[owner];
  while (received < version) {
    ++received;
    for (Copy& copy : copies_) {
      if (copy.shared->owner != owner) continue;
      const at::Tensor value = at::empty_like(weights_.value_of(*copy.shared), at::MemoryFormat::Contiguous);
      if (value.numel() > 0) wait_(messages_.start_receive(value, copy.giver));
      copy.versions[received] = value;
    }
  }
}

/// Drops versions that the next micro-batch no longer needs. Backward passes come in order, and versions never go back.
void SharedVersions::forget_unused(const VersionPlan& plan, int micro_batch) {
  for (Copy& copy : copies_) {
    const auto& used = plan.version_of.at(copy.shared->owner);
    if (const auto next = used.find(micro_batch + 1); next != used.end())
      copy.versions.erase(copy.versions.begin(), copy.versions.lower_bound(next->second));
  }
}

void SharedVersions::add_gradients(int version) {
  making_ = version;
  weights_.add_gradients(messages_, [this](const at::Tensor& gradient, int owner) {
    send(gradient.clone(), owner, ranks_.placement().first_beside(owner));
    gradient.zero_();
  });
}

void SharedVersions::send_newest() {
  for (const SharedWeight& each : weights_.all()) {
    if (each.owner != ranks_.home()) continue;
    const at::Tensor value = weights_.value_of(each).clone(at::MemoryFormat::Contiguous);
    if (value.numel() == 0) continue;
    weights_.exchange(each, [&](int user, int) { send(value, user, ranks_.home()); });
  }
}

/// A user has received all versions up to the version of a micro-batch whose passes are over. An owner has received all
/// gradients of a version that has arrived here.
void SharedVersions::send(const at::Tensor& tensor, int to, int owner) {
  const auto is_received = [this](int version, int of) {
    if (of == ranks_.home()) return version <= heard_;
    const auto newest = received_.find(of);
    return newest != received_.end() && version <= newest->second;
  };
  sent_.let_go(is_received, wait_);
  sent_.add(messages_.start_send(tensor, to), making_, owner);
}

void SharedVersions::finish(int last) {
  for (Copy& copy : copies_) {
    receive(copy.shared->owner, last);
    show(copy, last);
    copy.versions.clear();
  }
  sent_.finish(wait_);
}

int64_t SharedVersions::kept_bytes() const {
  int64_t bytes = 0;
  for (const Copy& copy : copies_) {
    const auto found = received_.find(copy.shared->owner);
    const int newest = found == received_.end() ? 0 : found->second;
    for (const auto& [version, value] : copy.versions)
      if (version < newest) bytes += static_cast<int64_t>(value.nbytes());
  }
  return bytes;
}

}  // namespace funicular::parallel
