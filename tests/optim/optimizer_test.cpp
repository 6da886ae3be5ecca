// Claims about optimisers: against LibTorch's own, and against the papers' formulas in double precision.
#include <ATen/ops/_fused_adamw.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <utility>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/optim/clipping.h"
#include "funicular/optim/optimizer.h"
#include "tests/optim/helpers.h"

namespace funicular::optim {
namespace {

/// Runs `steps` updates of ours and of `Peer`; returns the largest difference of a parameter.
template <class Peer, class PeerOptions>
double difference_from(const OptimizerSpec& spec, PeerOptions with_decay, PeerOptions without_decay,
                       at::ScalarType type) {
  Model ours = make_model(type), theirs = make_model(type);
  parallel::Holding flat(ours);
  const auto optimizer = make_optimizer(spec);
  optimizer->attach(flat.target());
  std::vector<at::Tensor> decay{theirs.parameters[0]->master, theirs.parameters[2]->master},
      rest{theirs.parameters[1]->master};
  Peer peer_decay(decay, with_decay), peer_rest(rest, without_decay);
  double difference = 0;
  for (int64_t step = 1; step <= 10; ++step) {
    set_gradients(ours, step);
    for (size_t i = 0; i < 3; ++i)
      theirs.parameters[i]->master.mutable_grad() = ours.parameters[i]->gradient * 0.5;
    optimizer->step({.learning_rate = peak_learning_rate(spec), .gradient_scale = 0.5, .step = step});
    peer_decay.step();
    peer_rest.step();
    for (size_t i = 0; i < 3; ++i)
      difference =
          std::max(difference, largest_difference(ours.parameters[i]->master, theirs.parameters[i]->master));
  }
  return difference;
}

TEST(AdamW, EqualsLibTorch) {
  const AdamW spec{.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};
  const auto options = torch::optim::AdamWOptions(0.01).betas({0.8, 0.95}).eps(1e-6);
  auto with = options, without = options;
  with.weight_decay(0.1);
  without.weight_decay(0);
  EXPECT_LT((difference_from<torch::optim::AdamW>(spec, with, without, at::kDouble)), 1e-14);
  EXPECT_LT((difference_from<torch::optim::AdamW>(spec, with, without, at::kFloat)), kSingle);
}

TEST(Adam, EqualsLibTorch) {
  const Adam spec{.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};
  const auto options = torch::optim::AdamOptions(0.01).betas({0.8, 0.95}).eps(1e-6);
  auto with = options, without = options;
  with.weight_decay(0.1);
  EXPECT_LT((difference_from<torch::optim::Adam>(spec, with, without, at::kDouble)), 1e-14);
  EXPECT_LT((difference_from<torch::optim::Adam>(spec, with, without, at::kFloat)), kSingle);
}

TEST(Sgd, EqualsLibTorch) {
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      if (nesterov && momentum == 0) continue;
      const Sgd spec{.learning_rate = 0.1, .momentum = momentum, .nesterov = nesterov, .weight_decay = 0.1};
      const auto options = torch::optim::SGDOptions(0.1).momentum(momentum).nesterov(nesterov);
      auto with = options, without = options;
      with.weight_decay(0.1);
      EXPECT_LT((difference_from<torch::optim::SGD>(spec, with, without, at::kDouble)), 1e-14);
      EXPECT_LT((difference_from<torch::optim::SGD>(spec, with, without, at::kFloat)), kSingle);
    }
}

/// Algorithm 2 of Chen et al. 2023 in LibTorch's operations.
class PaperLion {
 public:
  PaperLion(std::vector<at::Tensor> parameters, const Lion& lion)
      : parameters_(std::move(parameters)), lion_(lion) {
    for (const at::Tensor& parameter : parameters_) momenta_.push_back(torch::zeros_like(parameter));
  }
  void step() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor theta = parameters_[i].detach(), g = parameters_[i].grad(), m = momenta_[i];
      const at::Tensor c = lion_.beta1 * m + (1 - lion_.beta1) * g;
      theta.sub_(lion_.learning_rate * (c.sign() + lion_.weight_decay * theta));
      m.copy_(lion_.beta2 * m + (1 - lion_.beta2) * g);
    }
  }

 private:
  std::vector<at::Tensor> parameters_, momenta_;
  Lion lion_;
};

TEST(Lion, FollowsThePapersAlgorithm) {
  const Lion lion{.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1};
  Lion without = lion;
  without.weight_decay = 0;
  EXPECT_LT((difference_from<PaperLion>(lion, lion, without, at::kDouble)), 1e-14);
  EXPECT_LT((difference_from<PaperLion>(lion, lion, without, at::kFloat)), kSingle);
}

TEST(Lion, MovesNoWeightWithoutGradientsAndHidesNoNaN) {
  Model model = make_model(at::kFloat);
  parallel::Holding flat(model);
  const auto optimizer = make_optimizer(Lion{});
  optimizer->attach(flat.target());
  const at::Tensor before = masters_of(flat);
  for (const auto& parameter : model.parameters) parameter->gradient.zero_();
  optimizer->step({.learning_rate = 0.01, .step = 1});
  EXPECT_TRUE(torch::equal(masters_of(flat), before));
  model.parameters[0]->gradient[2][3] = NAN;
  optimizer->step({.learning_rate = 0.01, .step = 2});
  EXPECT_TRUE(model.parameters[0]->master[2][3].isnan().item<bool>());
  EXPECT_EQ(masters_of(flat).isnan().sum().item<int64_t>(), 1);
}

TEST(AdamW, EqualsLibTorchsFusedKernel) {
  Model ours = make_model(at::kFloat);
  parallel::Holding flat(ours);
  const auto optimizer = make_optimizer(AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
  optimizer->attach(flat.target());
  const at::Tensor decayed = flat.masters(ParameterKind::matrix);
  const at::Tensor parameter = decayed.clone(), first = torch::zeros_like(parameter),
                   second = torch::zeros_like(parameter);
  for (int64_t step = 1; step <= 10; ++step) {
    set_gradients(ours, step);
    const at::Tensor gradient = flat.gradients(ParameterKind::matrix).clone();
    at::_fused_adamw_({parameter}, {gradient}, {first}, {second}, {},
                      {torch::tensor(static_cast<float>(step))}, 0.01, 0.9, 0.999, 0.1, 1e-8, false, false);
    optimizer->step({.learning_rate = 0.01, .step = step});
    EXPECT_LT(largest_difference(decayed, parameter), kSingle);
  }
}

TEST(AdamW, FollowsThePapersFormula) {
  Model model;
  model.add_parameter("weight", torch::tensor({{0.5}, {-2.0}}, torch::kDouble), ParameterKind::matrix);
  parallel::Holding flat(model);
  const auto optimizer = make_optimizer(AdamW{.learning_rate = 0.1, .weight_decay = 0.3});
  optimizer->attach(flat.target());
  double theta[2] = {0.5, -2.0}, m[2] = {0, 0}, v[2] = {0, 0};
  for (int64_t t = 1; t <= 20; ++t) {
    const double alpha = 0.1 / static_cast<double>(t);
    for (int64_t i = 0; i < 2; ++i) {
      const double g = std::sin(static_cast<double>(3 * t + i));
      model.parameters[0]->gradient[i] = g;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, t)), v_hat = v[i] / (1 - std::pow(0.999, t));
      theta[i] -= alpha * (m_hat / (std::sqrt(v_hat) + 1e-8) + 0.3 * theta[i]);
    }
    optimizer->step({.learning_rate = alpha, .step = t});
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_NEAR(model.parameters[0]->master[i].item<double>(), theta[i], 1e-13);
  }
}

TEST(Optimizers, AreBitIdenticalForAnyNumberOfThreads) {
  for (const OptimizerSpec& spec :
       {OptimizerSpec(AdamW{.weight_decay = 0.1}), OptimizerSpec(Adam{.weight_decay = 0.1}),
        OptimizerSpec(Sgd{.momentum = 0.9, .weight_decay = 0.1}), OptimizerSpec(Lion{.weight_decay = 0.1})}) {
    const auto results = with_threads([&] {
      Model model;
      torch::manual_seed(1);
      model.add_parameter("weight", torch::randn({501, 1001}), ParameterKind::matrix);
      parallel::Holding flat(model);
      const auto optimizer = make_optimizer(spec);
      optimizer->attach(flat.target());
      for (int64_t step = 1; step <= 3; ++step) {
        set_gradients(model, step);
        optimizer->step({.learning_rate = 0.01, .gradient_scale = 0.3, .step = step});
      }
      return masters_of(flat);
    });
    for (const at::Tensor& result : results)
      EXPECT_TRUE(torch::equal(result, results.front())) << optimizer_name(spec);
  }
}

TEST(Optimizers, LeaveThePaddingZero) {
  for (const OptimizerSpec& spec :
       {OptimizerSpec(AdamW{.weight_decay = 0.1}), OptimizerSpec(Sgd{.momentum = 0.9})}) {
    Model model = make_model(at::kFloat);
    parallel::Holding flat(model);
    const auto optimizer = make_optimizer(spec);
    optimizer->attach(flat.target());
    for (int64_t step = 1; step <= 3; ++step) {
      set_gradients(model, step);
      optimizer->step({.learning_rate = 0.01, .step = step});
    }
    at::Tensor outside = torch::ones({flat.layout().size()}, torch::kBool);
    for (const auto& entry : flat.layout().entries())
      outside.narrow(0, entry.offset, entry.size).fill_(false);
    EXPECT_GT(outside.sum().item<int64_t>(), 0);
    EXPECT_EQ(masters_of(flat).index({outside}).abs().sum().item<double>(), 0);
  }
}

TEST(Optimizers, RefuseSettingsOutOfRange) {
  EXPECT_THROW(make_optimizer(AdamW{.learning_rate = -1}), InputError);
  EXPECT_THROW(make_optimizer(AdamW{.learning_rate = NAN}), InputError);
  EXPECT_THROW(make_optimizer(Adam{.beta2 = 1}), InputError);
  EXPECT_THROW(make_optimizer(Sgd{.nesterov = true}), InputError);
  EXPECT_THROW(make_optimizer(AdamW{.epsilon = 0}), InputError);
  EXPECT_THROW(make_optimizer(Lion{.beta1 = 1}), InputError);
  EXPECT_THROW(make_optimizer(StableAdamW{.epsilon = 0}), InputError);
  EXPECT_THROW(make_optimizer(Adam{.epsilon = 1e-60}), InputError) << "0 as a float";
}

TEST(Clipping, NormEqualsLibTorchsAndIsBitIdenticalForAnyNumberOfThreads) {
  torch::manual_seed(2);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const at::Tensor flat = torch::randn({1000003}).to(type);
    const auto norms = with_threads([&] { return global_norm(flat); });
    EXPECT_NEAR(norms.front() / flat.to(at::kDouble).norm().item<double>(), 1, 1e-13);
    for (const double norm : norms) EXPECT_EQ(norm, norms.front());
  }
}

TEST(Clipping, NormIsNotFiniteIfAnElementIsNot) {
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    at::Tensor flat = torch::zeros({50001});
    flat[49999] = bad;
    EXPECT_FALSE(std::isfinite(global_norm(flat)));
  }
}

TEST(Clipping, FactorIsThatOfLibTorch) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_factor(100, 0), 1.0) << "0 means no clipping";
}

}  // namespace
}  // namespace funicular::optim
