#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <cmath>
#include <utility>

#include "funicular/base/error.h"
#include "funicular/core/autocast.h"
#include "funicular/core/flat_parameters.h"
#include "funicular/optim/clipping.h"
#include "funicular/parallel/strategy.h"

namespace funicular::parallel {

namespace {

/// Sums of loss terms over micro-batches. They stay tensors until the end: reading one waits for the device.
class TermSums {
 public:
  void add(const LossSink& sink) {
    for (const LossSink::Term& term : sink.terms()) {
      const auto [found, added] = sums_.try_emplace(term.name);
      Sum& sum = found->second;
      if (!added && sum.weight != term.weight)
        throw InputError(
            "loss", "the loss term {} has the weight {} and the weight {}; give the terms different names",
            term.name, sum.weight, term.weight);
      const at::Tensor value = term.sum.detach().to(at::kDouble);
      sum.value = sum.value.defined() ? sum.value + value : value;
      sum.weight = term.weight;
    }
  }

  /// each(name, sum, weight)
  template <class Each>
  void for_each(Each each) const {
    for (const auto& [name, sum] : sums_) each(name, sum.value.template item<double>(), sum.weight);
  }

 private:
  struct Sum {
    at::Tensor value;
    double weight = 1;
  };
  std::map<std::string, Sum> sums_;
};

class Single final : public Strategy {
 public:
  void attach(Model& model, std::unique_ptr<optim::Optimizer> optimizer, const Numerics& numerics) override {
    if (model_) throw InputError("strategy", "a strategy is attached to one model, once");
    model_ = &model;
    optimizer_ = std::move(optimizer);
    MatrixTypes types;
    if (model.low_precision && numerics.compute) {
      types.compute = numerics.compute;
      // One micro-batch a step: each gradient is written once, so nothing is lost by its product's type.
      if (!numerics.accumulates) types.gradient = numerics.compute;
    }
    if (!model.low_precision) autocast_ = numerics.compute;
    flat_ = std::make_unique<FlatParameters>(model, types);
    optimizer_->attach(*flat_);
  }

  DataShare data_share() const override { return {}; }

  StepResult step(std::span<const MicroBatch> micro_batches, const Counts& global,
                  const StepSettings& settings) override {
    if (model_->set_training) model_->set_training(true);
    gradients_are_zero_ ? flat_->point_gradients() : flat_->zero_gradient();
    gradients_are_zero_ = false;
    TermSums sums;
    for (const MicroBatch& batch : micro_batches) {
      LossSink sink;
      {
        const Autocast autocast(autocast_);
        forward_recomputed(*model_, settings.recompute, {}, batch, {}, sink);
      }
      sums.add(sink);
      const at::Tensor total = sink.total(global);
      if (total.defined()) (settings.loss_scale == 1 ? total : total * settings.loss_scale).backward();
    }
    StepResult result;
    sums.for_each([&](const std::string& name, double sum, double weight) {
      const double count = count_of(global, name);
      const double mean = count == 0 ? 0 : sum / count;
      result.losses[name] = mean;
      result.loss += weight * mean;
      if (!std::isfinite(mean) && result.non_finite_loss.empty()) result.non_finite_loss = name;
    });
    {
      RECORD_FUNCTION("funicular::gradient_norm", c10::ArrayRef<const c10::IValue>{});
      result.gradient_norm = optim::global_norm(*flat_) / settings.loss_scale;
    }
    result.finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
    if (!result.finite) {
      result.non_finite_gradient = first_non_finite_gradient();
      return result;
    }
    RECORD_FUNCTION("funicular::optimizer", c10::ArrayRef<const c10::IValue>{});
    const double clip = optim::clip_factor(result.gradient_norm, settings.max_gradient_norm);
    optimizer_->step({.learning_rate = settings.learning_rate,
                      .gradient_scale = clip / settings.loss_scale,
                      .step = settings.update,
                      .zero_gradients = true});
    gradients_are_zero_ = true;
    return result;
  }

  EvalResult evaluate(std::span<const MicroBatch> micro_batches) override {
    const Autocast autocast(autocast_);
    return evaluate_micro_batches(*model_, micro_batches);
  }

  void visit_state(StateVisitor& visitor) override {
    for (const auto& parameter : model_->parameters)
      visit_slices(visitor, "model", *parameter, parameter->master);
    for (const auto& [state_name, state] : optimizer_->state())
      for (const FlatParameters::Entry& entry : flat_->entries())
        visit_slices(visitor, "optimizer." + state_name, *entry.parameter, flat_->view(state, entry));
    for (const Buffer& buffer : model_->buffers)
      visitor.visit("buffer", buffer.name, buffer.value.sizes().vec(), 0, rows(buffer.value), buffer.value);
  }

  void state_changed() override {
    const at::NoGradGuard no_gradient;
    for (const auto& parameter : model_->parameters)
      if (parameter->compute.scalar_type() != parameter->master.scalar_type())
        parameter->compute.copy_(parameter->master);
  }

 private:
  static int64_t rows(const at::Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(0); }

  static void visit_slices(StateVisitor& visitor, const std::string& kind, const Parameter& parameter,
                           const at::Tensor& value) {
    for (const Parameter::Slice& slice : parameter.slices) {
      const at::Tensor local =
          value.dim() == 0 ? value.detach() : value.detach().narrow(0, slice.begin, slice.end - slice.begin);
      visitor.visit(kind, slice.name, local.sizes().vec(), 0, rows(local), local);
    }
  }

  /// In the model's order, or "" (then only the sum of squares overflowed).
  std::string first_non_finite_gradient() const {
    for (const auto& parameter : model_->parameters)
      for (const FlatParameters::Entry& entry : flat_->entries())
        if (entry.parameter == parameter.get() &&
            !std::isfinite(optim::global_norm(flat_->gradient_view(entry).view(-1))))
          return parameter->name;
    return "";
  }

  Model* model_ = nullptr;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<FlatParameters> flat_;
  std::optional<at::ScalarType> autocast_;
  bool gradients_are_zero_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_single() {
  return std::make_unique<Single>();
}

EvalResult evaluate_micro_batches(const Model& model, std::span<const MicroBatch> micro_batches) {
  const at::NoGradGuard no_gradient;
  if (model.set_training) model.set_training(false);
  EvalResult result;
  TermSums sums;
  for (const MicroBatch& batch : micro_batches) {
    LossSink sink;
    sink.keep_outputs = true;
    model.forward({}, batch, {}, sink);
    sums.add(sink);
    add_counts(result.counts, batch.counts);
    result.outputs.push_back(sink.outputs());
  }
  sums.for_each([&](const std::string& name, double sum, double weight) {
    result.sums[name] = sum;
    result.weights[name] = weight;
  });
  return result;
}

}  // namespace funicular::parallel
