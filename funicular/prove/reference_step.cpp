#include "funicular/prove/reference_step.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "funicular/base/error.h"

namespace funicular::prove {

namespace {

/// [Devlin], the published optimiser: weight decay passes over biases and normalisations. A table of biases is one,
/// too, as in transformers' Trainer, which goes by the name.
bool decays(const std::string& name, const at::Tensor& weight) {
  return weight.dim() > 1 && name.find("attention_bias") == name.npos;
}

at::Tensor copied(const at::Tensor& value) {
  return value.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

ReferenceStep::ReferenceStep(const ReferenceSettings& settings, const NamedTensors& weights,
                             const NamedTensors& constants)
    : settings_(settings),
      loss_(make_reference_loss(
          settings.loss, [this](const std::string& name) -> const at::Tensor& { return weight(name); })) {
  for (const auto& [name, value] : weights) {
    weights_[name] = copied(value);
    first_[name] = at::zeros_like(weights_[name]);
    second_[name] = at::zeros_like(weights_[name]);
  }
  for (const auto& [name, value] : constants) constants_[name] = copied(value);
}

const at::Tensor& ReferenceStep::weight(const std::string& name) const {
  if (const auto found = weights_.find(name); found != weights_.end()) return found->second;
  const auto found = constants_.find(name);
  if (found == constants_.end())
    throw InputError("reference", "the model has no weight {}; expected a BERT with its head", name);
  return found->second;
}

std::map<std::string, double> ReferenceStep::differentiate(
    std::span<const ReferenceRow> rows, const std::function<int64_t(const std::string&)>& age) {
  std::map<std::string, double> counts, losses;
  for (const ReferenceRow& row : rows)
    for (const auto& [term, count] : loss_->counts(row)) counts[term] += count;
  const NamedTensors newest = weights_;
  for (auto& [name, value] : weights_)
    if (const int64_t updates = age ? age(name) : 0; updates > 0)
      value = history_.at(history_.size() - static_cast<size_t>(updates)).at(name);
  for (auto& [name, value] : weights_) value = value.detach().requires_grad_();
  const auto add = [&](const std::map<std::string, at::Tensor>& sums) {
    at::Tensor share = at::zeros({}, at::kDouble);
    for (const auto& [term, sum] : sums) {
      const at::Tensor mean = sum / std::max(1.0, counts.at(term));
      share = share + loss_->weight(term) * mean;
      losses[term] += mean.item<double>();
    }
    share.backward();
    losses["total"] += share.item<double>();
  };
  if (const auto whole = loss_->sums_of_batch(rows); !whole.empty())
    add(whole);
  else
    for (const ReferenceRow& row : rows) add(loss_->sums(row));
  for (auto& [name, value] : weights_) {
    const at::Tensor& gradient = value.grad();
    gradients_[name] = gradient.defined() ? gradient : at::zeros_like(value);
  }
  for (auto& [name, value] : weights_) value = newest.at(name).detach();
  return losses;
}

/// Clipping by norm is [Pascanu], algorithm 1, with the 1e-6 of torch.nn.utils.clip_grad_norm_. The update is
/// [Loshchilov], algorithm 2, lines 6 to 12, with the decay multiplied by the learning rate, as in PyTorch.
void ReferenceStep::update(const std::function<int(const std::string&)>& group) {
  const at::NoGradGuard no_gradient;
  const auto group_of = [&](const std::string& name) { return group ? group(name) : 0; };
  std::map<int, double> squares;
  for (const auto& [name, gradient] : gradients_)
    squares[group_of(name)] += gradient.square().sum().item<double>();
  const double limit = settings_.max_grad_norm;
  history_.push_back(weights_);
  ++updates_;
  const double beta1 = settings_.beta1, beta2 = settings_.beta2, rate = settings_.learning_rate;
  const double steps = static_cast<double>(updates_);
  for (auto& [name, theta] : weights_) {
    const double norm = std::sqrt(squares.at(group_of(name)));
    const at::Tensor gradient =
        gradients_.at(name) * (limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0);
    at::Tensor &m = first_.at(name), &v = second_.at(name);
    m = beta1 * m + (1 - beta1) * gradient;
    v = beta2 * v + (1 - beta2) * gradient.square();
    const at::Tensor m_hat = m / (1 - std::pow(beta1, steps)), v_hat = v / (1 - std::pow(beta2, steps));
    const double decay = decays(name, theta) ? settings_.weight_decay : 0;
    theta = theta - rate * (m_hat / (v_hat.sqrt() + settings_.epsilon) + decay * theta);
  }
}

}  // namespace funicular::prove
