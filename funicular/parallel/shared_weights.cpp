#include "funicular/parallel/shared_weights.h"

#include <ATen/ops/empty_like.h>

#include <utility>

namespace funicular::parallel {

SharedWeights::SharedWeights(std::vector<SharedWeight> weights, const Holding& own,
                             std::unique_ptr<Holding> copies, const PipelineRanks& ranks, Wait wait)
    : weights_(std::move(weights)),
      own_(own),
      copies_(std::move(copies)),
      ranks_(ranks),
      wait_(std::move(wait)) {}

const Holding* SharedWeights::holding_with(const SharedWeight& shared) const {
  if (own_.holds(shared.parameter)) return &own_;
  return copies_ && copies_->holds(shared.parameter) ? copies_.get() : nullptr;
}

at::Tensor SharedWeights::value_of(const SharedWeight& shared) const {
  const Holding* const with = holding_with(shared);
  return with ? with->weight_of(*shared.parameter) : shared.parameter->compute.detach();
}

/// Each replica has its piece of a weight that the replicas divide, on the owner's stage and on the users' stages.
at::Tensor SharedWeights::gradient_of(const SharedWeight& shared) const {
  const Holding* const with = holding_with(shared);
  return with ? with->gradient_of(*shared.parameter) : at::Tensor();
}

/// Each rank of a using stage has one rank of the owner's stage to which it sends and from which it receives.
void SharedWeights::exchange(const SharedWeight& shared,
                             const std::function<void(int user, int owner)>& use) const {
  const std::vector<int> owners = ranks_.beside(shared.owner);
  for (const int home_of_users : shared.users) {
    const std::vector<int> users = ranks_.beside(home_of_users);
    for (size_t i = 0; i < users.size(); ++i)
      if (const int owner = owners[i % owners.size()]; users[i] == ranks_.rank() || owner == ranks_.rank())
        use(users[i], owner);
  }
}

void SharedWeights::add_gradients(const comm::Group& messages,
                                  const std::function<void(const at::Tensor& gradient, int to)>& send) const {
  for (const SharedWeight& shared : weights_) {
    const at::Tensor gradient = gradient_of(shared);
    if (gradient.defined() && gradient.numel() == 0) continue;
    exchange(shared, [&](int user, int owner) {
      if (user == ranks_.rank()) return send(gradient, owner);
      const at::Tensor theirs = at::empty_like(gradient, at::MemoryFormat::Contiguous);
      wait_(messages.start_receive(theirs, user));
      gradient.add_(theirs);
    });
  }
}

void SharedWeights::spread() const {
  for (const SharedWeight& shared : weights_) {
    const at::Tensor value = value_of(shared);
    if (value.numel() == 0) continue;
    exchange(shared, [&](int user, int owner) {
      wait_(user == ranks_.rank() ? ranks_.messages().start_receive(value, owner)
                                  : ranks_.messages().start_send(value, user));
    });
  }
}

}  // namespace funicular::parallel
