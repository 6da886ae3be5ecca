// Claims about LAMB, LARS and StableAdamW: against the algorithms, once by hand and once in LibTorch's operations.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "funicular/base/error.h"
#include "funicular/optim/optimizer.h"
#include "tests/optim/helpers.h"

namespace funicular::optim {
namespace {

/// Query, key and value in one parameter and its bias, an embedding of several blocks, a normalisation.
Model make_layers(at::ScalarType type, bool fused = true) {
  torch::manual_seed(3);
  Model model;
  const auto add = [&](const std::vector<std::string>& names, const at::Tensor& value, ParameterKind kind) {
    const int64_t rows = value.size(0) / static_cast<int64_t>(names.size());
    if (!fused) {
      for (size_t i = 0; i < names.size(); ++i)
        model.add_parameter(names[i], value.narrow(0, static_cast<int64_t>(i) * rows, rows).clone(), kind);
      return;
    }
    Parameter* parameter = model.add_parameter(names[0] + "…", value, kind);
    parameter->slices.clear();
    for (size_t i = 0; i < names.size(); ++i)
      parameter->slices.push_back(
          {names[i], static_cast<int64_t>(i) * rows, static_cast<int64_t>(i + 1) * rows});
  };
  const auto random = [&](at::IntArrayRef sizes, double scale) {
    return (torch::randn(sizes, at::kDouble) * scale).to(type);
  };
  // The three differ in size, so that one norm for all of them would be wrong.
  at::Tensor qkv = random({3 * 30, 31}, 0.1);
  qkv.narrow(0, 30, 30).mul_(10);
  add({"query.weight", "key.weight", "value.weight"}, qkv, ParameterKind::matrix);
  add({"embedding.weight"}, random({613, 61}, 1), ParameterKind::matrix);
  add({"query.bias", "key.bias", "value.bias"}, random({3 * 30}, 0.2), ParameterKind::vector);
  add({"norm.weight"}, random({31}, 3), ParameterKind::vector);
  return model;
}

using Tensors = std::map<std::string, at::Tensor>;

/// The logical tensors of the masters or the gradients, as copies in double.
Tensors logical(const Model& model, bool gradients) {
  Tensors result;
  for (const auto& parameter : model.parameters)
    for (const Parameter::Slice& slice : parameter->slices)
      result[slice.name] = (gradients ? parameter->gradient : parameter->master)
                               .detach()
                               .narrow(0, slice.begin, slice.end - slice.begin)
                               .to(at::kDouble)
                               .clone();
  return result;
}

bool is_matrix(const std::string& name) {
  return name.find(".weight") != std::string::npos && name.find("norm") == std::string::npos;
}

double norm_of(const at::Tensor& tensor) {
  return tensor.norm().item<double>();
}

/// Algorithm 2 of the LAMB paper in LibTorch's operations, a tensor at a time.
struct LambReference {
  Lamb options;
  Tensors first{}, second{};

  void step(Tensors& weights, const Tensors& gradients, double rate, int64_t t) {
    for (auto& [name, x] : weights) {
      const at::Tensor& g = gradients.at(name);
      at::Tensor &m = first[name], &v = second[name];
      if (!m.defined()) m = torch::zeros_like(x), v = torch::zeros_like(x);
      m = options.beta1 * m + (1 - options.beta1) * g;
      v = options.beta2 * v + (1 - options.beta2) * g * g;
      at::Tensor m_hat = m, v_hat = v;
      if (options.bias_correction) {
        m_hat = m / (1 - std::pow(options.beta1, t));
        v_hat = v / (1 - std::pow(options.beta2, t));
      }
      const at::Tensor r = options.epsilon_placement == EpsilonPlacement::outside
                               ? m_hat / (v_hat.sqrt() + options.epsilon)
                               : m_hat / (v_hat + options.epsilon).sqrt();
      const at::Tensor u = is_matrix(name) ? r + options.weight_decay * x : r;
      double ratio = 1;
      const double weight = std::min(std::max(norm_of(x), options.weight_norm_bounds.lowest),
                                     options.weight_norm_bounds.highest);
      if ((is_matrix(name) || options.trust_ratio == TrustRatio::paper) && weight > 0 && norm_of(u) > 0)
        ratio = std::min(std::max(weight / norm_of(u), options.trust_bounds.lowest),
                         options.trust_bounds.highest);
      x = x - rate * ratio * u;
    }
  }
};

/// Algorithm 1 of the LARS paper; with rate_in_momentum = false as timm writes it.
struct LarsReference {
  Lars options;
  Tensors velocity{};

  void step(Tensors& weights, const Tensors& gradients, double rate, int64_t) {
    for (auto& [name, w] : weights) {
      const at::Tensor& g = gradients.at(name);
      at::Tensor& v = velocity[name];
      if (!v.defined()) v = torch::zeros_like(w);
      const double decay = is_matrix(name) ? options.weight_decay : 0;
      double ratio = 1;
      if ((is_matrix(name) || options.trust_ratio == TrustRatio::paper) && norm_of(w) > 0 && norm_of(g) > 0) {
        ratio = options.trust_coefficient * norm_of(w) / (norm_of(g) + decay * norm_of(w) + options.epsilon);
        ratio = std::min(std::max(ratio, options.trust_bounds.lowest), options.trust_bounds.highest);
        if (options.clip) ratio = std::min(ratio / rate, 1.0);
      }
      const at::Tensor d = ratio * (g + decay * w);
      if (options.rate_in_momentum) {
        v = options.momentum * v + rate * d;
        w = w - (options.nesterov ? options.momentum * v + rate * d : v);
      } else {
        v = options.momentum * v + d;
        w = w - rate * (options.nesterov ? options.momentum * v + d : v);
      }
    }
  }
};

/// The definition in optim/stable_adamw.h in LibTorch's operations, a tensor at a time.
struct StableAdamWReference {
  StableAdamW options;
  Tensors first{}, second{};

  static double beta_at(double beta, int64_t t) {
    return beta * (1 - std::pow(beta, t - 1)) / (1 - std::pow(beta, t));
  }
  void step(Tensors& weights, const Tensors& gradients, double rate, int64_t t) {
    const double b1 = beta_at(options.beta1, t), b2 = beta_at(options.beta2, t);
    for (auto& [name, x] : weights) {
      const at::Tensor& g = gradients.at(name);
      at::Tensor &m = first[name], &v = second[name];
      if (!m.defined()) m = torch::zeros_like(x), v = torch::zeros_like(x);
      m = b1 * m + (1 - b1) * g;
      v = b2 * v + (1 - b2) * g * g;
      const double floor = options.epsilon * options.epsilon;
      const double r = (g * g / v.clamp_min(floor)).mean().sqrt().item<double>();
      const double eta = rate / std::max(1.0, r);
      const double share = options.decouple_lr ? eta / options.learning_rate : eta;
      if (is_matrix(name)) x = x * (1 - share * options.weight_decay);
      x = x - eta * m / (v.sqrt() + options.epsilon);
    }
  }
};

/// The largest difference from `reference` in ten steps at a changing rate, relative to values above 1.
template <class Reference, class Options>
double difference_from(const Options& options, at::ScalarType type) {
  Model model = make_layers(type);
  parallel::Holding flat(model);
  const auto optimizer = make_optimizer(options);
  optimizer->attach(flat.target());
  Reference reference{options};
  Tensors weights = logical(model, false);
  double difference = 0;
  for (int64_t step = 1; step <= 10; ++step) {
    set_gradients(model, step);
    Tensors gradients = logical(model, true);
    for (auto& [name, gradient] : gradients) gradient = gradient * 0.5;
    const double rate = options.learning_rate / static_cast<double>(step);
    reference.step(weights, gradients, rate, step);
    optimizer->step({.learning_rate = rate, .gradient_scale = 0.5, .step = step});
    for (const auto& [name, value] : logical(model, false)) {
      const at::Tensor distance = (value - weights.at(name)).abs() / value.abs().clamp_min(1);
      difference = std::max(difference, distance.max().template item<double>());
    }
  }
  return difference;
}

std::vector<Lamb> lamb_variants() {
  const Lamb base{.learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1};
  std::vector<Lamb> result(7, base);
  result[1].trust_ratio = TrustRatio::paper;
  result[2].bias_correction = false;
  result[3].epsilon_placement = EpsilonPlacement::inside;
  result[4].trust_bounds = {0.5, 2};
  result[5].weight_norm_bounds = {4, 10};
  result[6].weight_decay = 0;
  return result;
}

std::vector<Lars> lars_variants() {
  const Lars base{.learning_rate = 5, .trust_coefficient = 0.01, .weight_decay = 0.1};
  std::vector<Lars> result(8, base);
  result[1].trust_ratio = TrustRatio::paper;
  result[2].rate_in_momentum = false;
  result[3].nesterov = true;
  result[4].nesterov = true;
  result[4].rate_in_momentum = false;
  result[5].trust_bounds = {0.001, 0.003};
  result[6].clip = true;
  result[6].learning_rate = 0.01;
  result[6].trust_coefficient = 0.5;
  result[7].momentum = 0;
  return result;
}

TEST(Lamb, FollowsThePapersAlgorithmWithEveryOption) {
  size_t variant = 0;
  for (const Lamb& options : lamb_variants()) {
    EXPECT_LT(difference_from<LambReference>(options, at::kDouble), 1e-13) << variant;
    EXPECT_LT(difference_from<LambReference>(options, at::kFloat), kSingle) << variant;
    ++variant;
  }
}

TEST(Lars, FollowsThePapersAlgorithmWithEveryOption) {
  size_t variant = 0;
  for (const Lars& options : lars_variants()) {
    EXPECT_LT(difference_from<LarsReference>(options, at::kDouble), 1e-13) << variant;
    EXPECT_LT(difference_from<LarsReference>(options, at::kFloat), kSingle) << variant;
    ++variant;
  }
}

std::vector<StableAdamW> stable_adamw_variants() {
  const StableAdamW base{
      .learning_rate = 0.05, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1};
  std::vector<StableAdamW> result(4, base);
  result[1].decouple_lr = true;
  result[2].weight_decay = 0;
  result[3].epsilon = 1;  // above the roots of most second moments
  return result;
}

TEST(StableAdamW, FollowsItsDefinitionWithEveryOption) {
  size_t variant = 0;
  for (const StableAdamW& options : stable_adamw_variants()) {
    EXPECT_LT(difference_from<StableAdamWReference>(options, at::kDouble), 1e-13) << variant;
    EXPECT_LT(difference_from<StableAdamWReference>(options, at::kFloat), kSingle) << variant;
    ++variant;
  }
}

/// By hand: gradients of 1, then one of 10, in one of two tensors.
TEST(StableAdamW, AJumpOfATensorsGradientSlowsThisTensorAlone) {
  Model model;
  for (const char* name : {"jumps", "stays"})
    model.add_parameter(name, torch::zeros({2}, at::kDouble), ParameterKind::matrix);
  parallel::Holding flat(model);
  const auto optimizer = make_optimizer(StableAdamW{.beta1 = 0.5, .beta2 = 0.5, .epsilon = 1e-12});
  optimizer->attach(flat.target());
  const auto step = [&](int64_t number, double gradient) {
    const at::Tensor before = torch::stack({model.parameters[0]->master, model.parameters[1]->master});
    model.parameters[0]->gradient.fill_(gradient);
    model.parameters[1]->gradient.fill_(1);
    optimizer->step({.learning_rate = 0.1, .step = number});
    return (before - torch::stack({model.parameters[0]->master, model.parameters[1]->master})).detach();
  };
  EXPECT_NEAR(step(1, 1)[0][0].item<double>(), 0.1, 1e-12);
  const at::Tensor moved = step(2, 10);  // 1 - b = 0.5 / 0.75 of both moments
  const double m = (1 + 2 * 10.0) / 3, v = (1 + 2 * 100.0) / 3, r = 10 / std::sqrt(v);
  EXPECT_GT(r, 1.2);
  EXPECT_NEAR(moved[0][1].item<double>(), 0.1 / r * m / std::sqrt(v), 1e-12);
  EXPECT_NEAR(moved[1][1].item<double>(), 0.1, 1e-12);
}

TEST(StableAdamW, ARateOfZeroMovesNothingWithADecoupledDecay) {
  Model model = make_layers(at::kDouble);
  parallel::Holding flat(model);
  const at::Tensor before = masters_of(flat);
  const auto optimizer =
      make_optimizer(StableAdamW{.learning_rate = 0, .weight_decay = 0.1, .decouple_lr = true});
  optimizer->attach(flat.target());
  set_gradients(model, 1);
  optimizer->step({.learning_rate = 0, .step = 1});
  EXPECT_TRUE(torch::equal(masters_of(flat), before));
}

/// One layer with the weights (3, 4): its norm is 5.
struct Small {
  Model model;
  std::unique_ptr<parallel::Holding> flat;
  std::unique_ptr<Optimizer> optimizer;

  explicit Small(const OptimizerSpec& spec, ParameterKind kind = ParameterKind::matrix, double scale = 1) {
    model.add_parameter("weight", torch::tensor({3.0, 4.0}, at::kDouble) * scale, kind);
    flat = std::make_unique<parallel::Holding>(model);
    optimizer = make_optimizer(spec);
    optimizer->attach(flat->target());
  }
  std::pair<double, double> step(double rate, double g0, double g1, int64_t t = 1) {
    Parameter& parameter = *model.parameters[0];
    parameter.gradient[0] = g0;
    parameter.gradient[1] = g1;
    optimizer->step({.learning_rate = rate, .step = t});
    return {parameter.master[0].item<double>(), parameter.master[1].item<double>()};
  }
};

TEST(Lamb, FirstStepOfASmallLayerWorkedOutByHand) {
  // m' = g and v' = g^2, so r = g / (|g| + 1) = (0.5, -0.75) and u = r + 0.5 x = (2, 1.25).
  Small small(Lamb{.epsilon = 1, .weight_decay = 0.5});
  const auto [a, b] = small.step(0.1, 1, -3);
  const double ratio = 5 / std::sqrt(2 * 2 + 1.25 * 1.25);
  EXPECT_NEAR(a, 3 - 0.1 * ratio * 2, 1e-14);
  EXPECT_NEAR(b, 4 - 0.1 * ratio * 1.25, 1e-14);
}

TEST(Lars, TwoStepsOfASmallLayerWorkedOutByHand) {
  Small small(Lars{.trust_coefficient = 0.1, .momentum = 0.5, .weight_decay = 0.2, .epsilon = 0});
  // |g| = 10: ratio 0.1 * 5 / (10 + 0.2 * 5) = 1 / 22; g + 0.2 w = (6.6, 8.8); v = 2 / 22 * that = (0.6,
  // 0.8).
  auto [a, b] = small.step(2, 6, 8);
  EXPECT_NEAR(a, 2.4, 1e-14);
  EXPECT_NEAR(b, 3.2, 1e-14);
  // |w| = 4, |g| = 3.2: ratio 0.1 * 4 / 4 = 0.1; g + 0.2 w = (3.68, 0.64); v = (0.3, 0.4) + 0.1 * that.
  std::tie(a, b) = small.step(1, 3.2, 0, 2);
  EXPECT_NEAR(a, 2.4 - 0.668, 1e-14);
  EXPECT_NEAR(b, 3.2 - 0.464, 1e-14);
}

TEST(TrustRatio, OfALayerWithoutAGradientOrWithoutAWeightIsOne) {
  Small still(Lamb{.trust_ratio = TrustRatio::paper});
  EXPECT_EQ(still.step(0.1, 0, 0), std::make_pair(3.0, 4.0));
  Small zero(Lamb{.epsilon = 1, .trust_ratio = TrustRatio::paper}, ParameterKind::vector, 0);
  EXPECT_NEAR(zero.step(0.1, 1, -3).second, 0.1 * 0.75, 1e-15);
  Small lars(Lars{.momentum = 0, .trust_ratio = TrustRatio::paper}, ParameterKind::vector, 0);
  EXPECT_NEAR(lars.step(0.1, 1, -3).second, 0.1 * 3, 1e-15);
}

TEST(TrustRatio, AppliesToBiasesInThePapersConventionOnly) {
  const auto moved = [](OptimizerSpec spec, ParameterKind kind) {
    Small small(spec, kind, 100);
    return 300 - small.step(1e-3, 1, 1).first;
  };
  for (const bool lamb : {true, false}) {
    const auto spec = [&](TrustRatio convention) {
      return lamb ? OptimizerSpec(Lamb{.trust_ratio = convention})
                  : OptimizerSpec(Lars{.trust_coefficient = 1, .trust_ratio = convention});
    };
    const double plain = moved(spec(TrustRatio::apex), ParameterKind::vector);
    EXPECT_NEAR(plain, 1e-3, 1e-8);
    EXPECT_GT(moved(spec(TrustRatio::paper), ParameterKind::vector), 100 * plain);
    EXPECT_GT(moved(spec(TrustRatio::apex), ParameterKind::matrix), 100 * plain)
        << "a matrix adapts without weight decay too";
  }
}

std::vector<OptimizerSpec> both() {
  return {Lamb{.learning_rate = 0.01, .weight_decay = 0.1, .trust_ratio = TrustRatio::paper},
          Lars{.learning_rate = 1, .weight_decay = 0.1, .trust_ratio = TrustRatio::paper}};
}

TEST(LayerwiseOptimizers, TrainFusedWeightsAsSeparateOnesBitByBit) {
  for (const OptimizerSpec& spec : both()) {
    Model fused = make_layers(at::kFloat, true), separate = make_layers(at::kFloat, false);
    parallel::Holding flat_fused(fused), flat_separate(separate);
    const auto first = make_optimizer(spec), second = make_optimizer(spec);
    first->attach(flat_fused.target());
    second->attach(flat_separate.target());
    for (int64_t step = 1; step <= 3; ++step) {
      set_gradients(fused, step);
      const Tensors gradients = logical(fused, true);
      for (const auto& parameter : separate.parameters)
        parameter->gradient.copy_(gradients.at(parameter->name));
      first->step({.learning_rate = 0.1, .step = step});
      second->step({.learning_rate = 0.1, .step = step});
    }
    const Tensors expected = logical(separate, false);
    for (const auto& [name, value] : logical(fused, false))
      EXPECT_TRUE(torch::equal(value, expected.at(name))) << optimizer_name(spec) << " " << name;
  }
}

TEST(LayerwiseOptimizers, ReachAScalarAndPassOverAnEmptyParameter) {
  for (const OptimizerSpec& spec : both()) {
    Model model;
    model.add_parameter("scale", torch::tensor(2.0f), ParameterKind::vector);
    model.add_parameter("empty", torch::zeros({0, 5}), ParameterKind::matrix);
    parallel::Holding flat(model);
    const auto optimizer = make_optimizer(spec);
    optimizer->attach(flat.target());
    model.find("scale")->gradient.fill_(1);
    optimizer->step({.learning_rate = 0.1, .step = 1});
    EXPECT_LT(model.find("scale")->master.item<float>(), 2);
  }
}

TEST(LayerwiseOptimizers, AreBitIdenticalForAnyNumberOfThreads) {
  for (const OptimizerSpec& spec : both()) {
    const auto results = with_threads([&] {
      Model model = make_layers(at::kFloat);
      // Larger than what is updated at once.
      model.add_parameter("large", torch::randn({1201, 1001}), ParameterKind::matrix);
      parallel::Holding flat(model);
      const auto optimizer = make_optimizer(spec);
      optimizer->attach(flat.target());
      for (int64_t step = 1; step <= 3; ++step) {
        set_gradients(model, step);
        optimizer->step({.learning_rate = 0.1, .gradient_scale = 0.3, .step = step});
      }
      return masters_of(flat);
    });
    for (const at::Tensor& result : results)
      EXPECT_TRUE(torch::equal(result, results.front())) << optimizer_name(spec);
  }
}

TEST(LayerwiseOptimizers, RefuseSettingsOutOfRange) {
  EXPECT_THROW(make_optimizer(Lamb{.learning_rate = -1}), InputError);
  EXPECT_THROW(make_optimizer(Lamb{.beta1 = 1}), InputError);
  EXPECT_THROW(make_optimizer(Lamb{.epsilon = 0}), InputError);
  EXPECT_THROW(make_optimizer(Lamb{.trust_bounds = {2, 1}}), InputError);
  EXPECT_THROW(make_optimizer(Lamb{.weight_norm_bounds = {0, NAN}}), InputError);
  EXPECT_THROW(make_optimizer(Lamb{.weight_norm_bounds = {0, 0}}), InputError);
  EXPECT_THROW(make_optimizer(Lars{.trust_coefficient = -1}), InputError);
  EXPECT_THROW(make_optimizer(Lars{.momentum = 0, .nesterov = true}), InputError);
  EXPECT_THROW(make_optimizer(Lars{.momentum = 1}), InputError);
}

TEST(LayerwiseOptimizers, DescribeWhatTheyAre) {
  const OrderedJson lamb = describe(Lamb{.trust_bounds = {0.01, 10}});
  EXPECT_EQ(lamb.at("name"), "lamb");
  EXPECT_EQ(lamb.at("trust_bounds").dump(), "[0.01,10.0]");
  EXPECT_EQ(lamb.at("weight_norm_bounds").dump(), "[0.0,null]");
  EXPECT_EQ(optimizer_name(Lars{}), "lars");
  EXPECT_EQ(peak_learning_rate(Lars{.learning_rate = 3}), 3);
}

}  // namespace
}  // namespace funicular::optim
