// The passes for GPUs, a few threads being the team, beside those of the processor.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/clipping.h"
#include "funicular/optim/optimizer.h"
#include "funicular/optim/scale_on_device.h"
#include "tests/optim/helpers.h"
#include "tests/team_kernels.h"

namespace funicular::optim {
namespace {

struct Trained {
  at::Tensor master, shadow;
  std::vector<std::pair<std::string, at::Tensor>> state;
};

/// Five steps; the gradients of the last are left, or zeroed.
Trained train(const OptimizerSpec& spec, at::ScalarType type, const MatrixTypes& types, bool team) {
  const TeamKernels kernels(team);
  Model model = make_model(type, kernels.place());
  parallel::Holding flat(model, types);
  const auto optimizer = make_optimizer(spec);
  optimizer->attach(flat.target());
  for (int64_t step = 1; step <= 5; ++step) {
    set_gradients(model, step);
    const bool zero = step % 2 == 0;
    optimizer->step({.learning_rate = 0.01, .gradient_scale = 0.5, .step = step, .zero_gradients = zero});
    for (const auto kind : {ParameterKind::matrix, ParameterKind::vector})
      EXPECT_EQ(flat.gradients(kind).any().item<bool>(), !zero) << step;
  }
  Trained trained{masters_of(flat).cpu().clone(), flat.target()->shadow, optimizer->state()};
  if (trained.shadow.defined()) trained.shadow = trained.shadow.cpu();
  for (auto& [name, value] : trained.state) value = value.cpu();
  return trained;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / std::max(1e-30, b.abs().max().item<double>());
}

void expect_same(const OptimizerSpec& spec, at::ScalarType type, const MatrixTypes& types) {
  const Trained team = train(spec, type, types, true), processor = train(spec, type, types, false);
  const double bound = type == at::kDouble ? 1e-14 : 1e-6;
  const std::string name = optimizer_name(spec);
  EXPECT_LT(difference(team.master, processor.master), bound) << name;
  ASSERT_EQ(team.state.size(), processor.state.size());
  for (size_t i = 0; i < team.state.size(); ++i)
    EXPECT_LT(difference(team.state[i].second, processor.state[i].second), bound) << name;
  if (!types.compute) return;
  EXPECT_TRUE(at::equal(team.shadow, team.master.narrow(0, 0, team.shadow.numel()).to(*types.compute)))
      << name;
}

const std::vector<OptimizerSpec> kSpecs = {
    AdamW{.weight_decay = 0.1},
    Adam{.weight_decay = 0.1},
    Sgd{.weight_decay = 0.1},
    Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
    Lion{.weight_decay = 0.1},
    Lamb{},
    StableAdamW{.weight_decay = 0.1},
    Lamb{.trust_ratio = TrustRatio::paper},
    Lars{},
    Lars{.rate_in_momentum = false},
};

TEST(DevicePasses, UpdateAsThoseOfTheProcessor) {
  for (const OptimizerSpec& spec : kSpecs) {
    expect_same(spec, at::kDouble, {});
    expect_same(spec, at::kFloat, {});
    for (const auto half : {at::kBFloat16, at::kHalf}) {
      expect_same(spec, at::kFloat, {half, half});
      expect_same(spec, at::kFloat, {half, std::nullopt});
    }
  }
}

/// Weights, states and gradients after a step with a rate of a tenth.
std::vector<at::Tensor> scaled_step(const OptimizerSpec& spec, double gradient_scale,
                                    std::optional<double> device_scale) {
  const TeamKernels kernels;
  Model model = make_model(at::kDouble, kernels.place());
  parallel::Holding flat(model, {});
  const auto optimizer = make_optimizer(spec);
  optimizer->attach(flat.target());
  set_gradients(model, 1);
  const StepInput input{
      .learning_rate = 0.1, .gradient_scale = gradient_scale, .step = 1, .zero_gradients = true};
  if (device_scale) {
    auto* const scaled = dynamic_cast<ScaleOnDevice*>(optimizer.get());
    EXPECT_TRUE(scaled && scaled->takes_scale());
    scaled->step_scaled(input,
                        at::full({}, *device_scale, at::TensorOptions(at::kDouble).device(kernels.place())));
  } else {
    optimizer->step(input);
  }
  std::vector<at::Tensor> result{masters_of(flat)};
  for (const auto& [name, value] : optimizer->state()) result.push_back(value);
  for (const auto kind : {ParameterKind::matrix, ParameterKind::vector})
    result.push_back(flat.gradients(kind));
  for (at::Tensor& value : result) value = value.cpu().clone();
  return result;
}

TEST(DevicePasses, TakeAScaleFromTheDevice) {
  for (const OptimizerSpec& spec : {OptimizerSpec(AdamW{.weight_decay = 0.1}), OptimizerSpec(Adam{}),
                                    OptimizerSpec(Lion{}), OptimizerSpec(Sgd{.momentum = 0.9})}) {
    const auto scaled = scaled_step(spec, 0.5, 0.125), plain = scaled_step(spec, 0.0625, std::nullopt);
    ASSERT_EQ(scaled.size(), plain.size());
    for (size_t i = 0; i < plain.size(); ++i)
      EXPECT_TRUE(at::equal(scaled[i], plain[i])) << optimizer_name(spec) << " " << i;
  }
}

/// All parts of a model of several blocks, of its states and of its gradients.
TEST(DevicePasses, ChangeNothingByAScaleThatIsNotFinite) {
  const TeamKernels kernels;
  Model model = make_model(at::kDouble);
  parallel::Holding flat(model, {});
  set_gradients(model, 1);
  for (const double scale : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    const auto after = scaled_step(AdamW{.weight_decay = 0.1}, 1, scale);
    EXPECT_TRUE(at::equal(after[0], masters_of(flat)));
    EXPECT_FALSE(after[1].any().item<bool>());
    EXPECT_FALSE(after[2].any().item<bool>());
    EXPECT_TRUE(at::equal(after[3], flat.gradients(ParameterKind::matrix)));
    EXPECT_TRUE(at::equal(after[4], flat.gradients(ParameterKind::vector)));
  }
}

TEST(DevicePasses, AScaleIsTakenOnlyOnADevice) {
  Model model = make_model(at::kDouble);
  parallel::Holding flat(model, {});
  const auto optimizer = make_optimizer(AdamW{});
  optimizer->attach(flat.target());
  EXPECT_FALSE(dynamic_cast<ScaleOnDevice&>(*optimizer).takes_scale());
}

TEST(DevicePasses, GiveTheClipFactor) {
  const TeamKernels kernels;
  for (const double largest : {0.0, 0.5, 3.0})
    for (const double norm : {0.0, 0.25, 2.0, 1e20}) {
      const at::Tensor factor = device_clip_factor(
          at::full({}, norm, at::TensorOptions(at::kDouble).device(kernels.place())), largest);
      EXPECT_EQ(factor.item<double>(), clip_factor(norm, largest)) << norm << " " << largest;
    }
}

/// Of more numbers than a team adds up, and of none.
TEST(DevicePasses, GiveTheNorm) {
  torch::manual_seed(3);
  for (const int64_t count : {0, 5, 100'003})
    for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      const at::Tensor values = torch::randn({count}, at::kDouble).to(type);
      const double expected = values.to(at::kDouble).norm().item<double>();
      const TeamKernels kernels;
      EXPECT_NEAR(global_norm(values.to(kernels.place())), expected, 1e-13 * expected) << type << count;
    }
}

TEST(DevicePasses, RefuseGradientsThatAreFreed) {
  const TeamKernels kernels;
  Model model = make_model(at::kFloat, kernels.place());
  parallel::Holding flat(model, {}, /*free_gradients=*/true);
  const auto optimizer = make_optimizer(AdamW{});
  EXPECT_THROW(optimizer->attach(flat.target()), InputError);
}

}  // namespace
}  // namespace funicular::optim
