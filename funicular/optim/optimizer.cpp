#include "funicular/optim/optimizer.h"

#include <ATen/ops/zeros.h>

#include <cmath>

#include "funicular/optim/device/passes.h"
#include "funicular/optim/flat_update.h"
#include "funicular/optim/settings.h"

namespace funicular::optim {

namespace {

/// Adam and AdamW differ in where the decay enters.
template <class Options>
class AdamOptimizer final : public Optimizer {
 public:
  static constexpr bool kDecoupled = std::is_same_v<Options, AdamW>;
  explicit AdamOptimizer(const Options& options) : options_(options) {}
  std::unique_ptr<Optimizer> another() const override { return std::make_unique<AdamOptimizer>(options_); }

  using Optimizer::attach;
  void attach(std::shared_ptr<const UpdateTarget> target) override {
    check_updatable(*target);
    target_ = std::move(target);
    awake_.forget();
    passes_ = device::make_passes(target_);
    first_ = make_state(*target_);
    second_ = make_state(*target_);
  }

  void step(const StepInput& input) override {
    const double t = static_cast<double>(input.step);
    AdamConstants without, with;
    without.gradient_scale = input.gradient_scale;
    without.beta1 = options_.beta1;
    without.beta2 = options_.beta2;
    without.epsilon = options_.epsilon;
    without.step_size = input.learning_rate;
    if (options_.bias_correction) {
      without.step_size /= 1 - std::pow(options_.beta1, t);
      without.second_correction = 1 / std::sqrt(1 - std::pow(options_.beta2, t));
    }
    with = without;
    if (kDecoupled)
      with.decay_factor = 1 - input.learning_rate * options_.weight_decay;
    else
      with.penalty = options_.weight_decay;
    if (passes_) return passes_->adam({with, without}, first_, second_, input.zero_gradients);
    BlockPass pass{.zero_gradient = input.zero_gradients};
    if (options_.weight_decay == 0) {  // else rows without gradients move, too
      awake_.wake(*target_, {first_, second_});
      pass.awake = &awake_;
    }
    update_blocks(
        *target_, pass,
        [&](const auto& block) {
          block.kernels().adam(block.parameter, block.gradient, block.of(first_), block.of(second_),
                               block.size, block.decay ? with : without);
        },
        [&](const auto& block) {
          block.kernels().adam(block.parameter, block.gradient, block.of(first_), block.of(second_),
                               block.shadow, block.size, block.decay ? with : without);
        });
  }

  bool takes_row_gradients() const override { return true; }

  std::vector<std::pair<std::string, at::Tensor>> state() const override {
    awake_.forget();  // whoever asks may load a checkpoint into it
    return {{"exp_avg", first_}, {"exp_avg_sq", second_}};
  }

 private:
  Options options_;
  std::shared_ptr<const UpdateTarget> target_;
  std::unique_ptr<device::Passes> passes_;  ///< on a GPU
  at::Tensor first_, second_;
  mutable AwakeRows awake_;
};

class SgdOptimizer final : public Optimizer {
 public:
  explicit SgdOptimizer(const Sgd& options) : options_(options) {}
  std::unique_ptr<Optimizer> another() const override { return std::make_unique<SgdOptimizer>(options_); }

  using Optimizer::attach;
  void attach(std::shared_ptr<const UpdateTarget> target) override {
    check_updatable(*target);
    target_ = std::move(target);
    passes_ = device::make_passes(target_);
    if (options_.momentum != 0) velocity_ = make_state(*target_);
  }

  void step(const StepInput& input) override {
    SgdConstants without{input.gradient_scale, 0, options_.momentum, input.learning_rate, options_.nesterov};
    SgdConstants with = without;
    with.penalty = options_.weight_decay;
    if (passes_) return passes_->sgd({with, without}, velocity_, {}, input.zero_gradients);
    update_blocks(*target_, {.zero_gradient = input.zero_gradients}, [&](const auto& block) {
      block.kernels().sgd(block.parameter, block.gradient,
                          velocity_.defined() ? block.of(velocity_) : nullptr, block.size,
                          block.decay ? with : without);
    });
  }

  std::vector<std::pair<std::string, at::Tensor>> state() const override {
    if (!velocity_.defined()) return {};
    return {{"momentum_buffer", velocity_}};
  }

 private:
  Sgd options_;
  std::shared_ptr<const UpdateTarget> target_;
  std::unique_ptr<device::Passes> passes_;  ///< on a GPU
  at::Tensor velocity_;
};

template <class Options>
std::unique_ptr<Optimizer> make_adam(const char* name, const Options& options) {
  check_range(name, "learning_rate", options.learning_rate);
  check_range(name, "weight_decay", options.weight_decay);
  check_range(name, "beta1", options.beta1, 1);
  check_range(name, "beta2", options.beta2, 1);
  check_epsilon(name, options.epsilon);
  return std::make_unique<AdamOptimizer<Options>>(options);
}

std::unique_ptr<Optimizer> make_one(const AdamW& options) {
  return make_adam("adamw", options);
}
std::unique_ptr<Optimizer> make_one(const Adam& options) {
  return make_adam("adam", options);
}
std::unique_ptr<Optimizer> make_one(const Sgd& options) {
  check_range("sgd", "learning_rate", options.learning_rate);
  check_range("sgd", "weight_decay", options.weight_decay);
  check_range("sgd", "momentum", options.momentum, 1);
  if (options.nesterov && options.momentum == 0)
    throw InputError("optimizer", "sgd: Nesterov's method needs a momentum above 0");
  return std::make_unique<SgdOptimizer>(options);
}

template <class Options>
OrderedJson describe_adam(const char* name, const Options& options) {
  return {{"name", name},
          {"learning_rate", options.learning_rate},
          {"beta1", options.beta1},
          {"beta2", options.beta2},
          {"epsilon", options.epsilon},
          {"weight_decay", options.weight_decay},
          {"bias_correction", options.bias_correction}};
}

OrderedJson describe_one(const AdamW& options) {
  return describe_adam("adamw", options);
}
OrderedJson describe_one(const Adam& options) {
  return describe_adam("adam", options);
}
OrderedJson describe_one(const Sgd& options) {
  return {{"name", "sgd"},
          {"learning_rate", options.learning_rate},
          {"momentum", options.momentum},
          {"nesterov", options.nesterov},
          {"weight_decay", options.weight_decay}};
}

}  // namespace

void check_updatable(const UpdateTarget& target) {
  const at::Tensor& master = target.matrix_master;
  const bool here = master.is_cpu() || master.is_cuda();
  if (!here || (master.scalar_type() != at::kFloat && master.scalar_type() != at::kDouble))
    throw InputError("optimizer",
                     "expected parameters of type Float or Double on the CPU or CUDA, found {} on {}",
                     c10::toString(master.scalar_type()), master.device().str());
}

at::Tensor make_state(const UpdateTarget& target) {
  const at::TensorOptions options = target.matrix_master.options().requires_grad(false);
  return target.make_state ? target.make_state(target.state_size, options)
                           : at::zeros({target.state_size}, options);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec) {
  return std::visit([](const auto& options) { return make_one(options); }, spec);
}

double peak_learning_rate(const OptimizerSpec& spec) {
  return std::visit([](const auto& options) { return options.learning_rate; }, spec);
}

std::string optimizer_name(const OptimizerSpec& spec) {
  return describe(spec)["name"];
}

OrderedJson describe(const OptimizerSpec& spec) {
  return std::visit([](const auto& options) { return describe_one(options); }, spec);
}

}  // namespace funicular::optim
