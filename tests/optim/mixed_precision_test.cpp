// Claims about 16-bit gradients and weights: conversions against c10, optimisers against themselves in fp32.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "funicular/base/half.h"
#include "funicular/base/random.h"
#include "funicular/optim/clipping.h"
#include "funicular/optim/kernels.h"
#include "funicular/optim/optimizer.h"
#include "tests/optim/helpers.h"

namespace funicular::optim {
namespace {

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

/// The same bits, or both NaN, whose payload LibTorch itself does not keep.
bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || bits_as<uint32_t>(a) == bits_as<uint32_t>(b);
}

/// Every pattern of the upper half with all that decides a rounding in the lower one, and 2^22 others.
std::vector<float> many_floats() {
  std::vector<float> result;
  for (uint32_t upper = 0; upper < 65536; ++upper)
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x1FFFu, 0x2000u, 0x3000u,
                                 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      result.push_back(bits_as<float>(upper << 16 | lower));
  for (uint32_t i = 0; i < 1u << 20; ++i)
    for (const uint32_t bits : philox({5, 6}, make_counter(i, 0, 0))) result.push_back(bits_as<float>(bits));
  return result;
}

template <class Ours, class Theirs>
void expect_conversions_of(const char* name) {
  std::vector<Ours> patterns(65536);
  for (uint32_t i = 0; i < 65536; ++i) patterns[i].bits = static_cast<uint16_t>(i);
  std::vector<float> wide(patterns.size());
  half_kernels<Ours>().widen(patterns.data(), wide.data(), static_cast<int64_t>(patterns.size()));
  int64_t wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const float expected = static_cast<float>(Theirs(static_cast<uint16_t>(i), Theirs::from_bits()));
    wrong += !same(wide[i], expected) + !same(widen(patterns[i]), expected);
  }
  EXPECT_EQ(wrong, 0) << name << ", widening";

  const std::vector<float> values = many_floats();
  std::vector<Ours> narrowed(values.size());
  half_kernels<Ours>().narrow(values.data(), narrowed.data(), static_cast<int64_t>(values.size()));
  wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const Theirs expected(values[i]);
    Ours alone;
    narrow(values[i], alone);
    for (const Ours found : {narrowed[i], alone})
      wrong += std::isnan(values[i]) ? !std::isnan(widen(found)) : found.bits != expected.x;
  }
  EXPECT_EQ(wrong, 0) << name << ", narrowing";
}

TEST(HalfConversions, EqualLibTorchsForAllPatternsAndForTiesSubnormalsInfinitiesAndNan) {
  expect_conversions_of<BFloat16, c10::BFloat16>("bfloat16");
  expect_conversions_of<Half, c10::Half>("half");
}

TEST(HalfConversions, SquareSumIsThatOfTheWidenedValues) {
  torch::manual_seed(4);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = torch::randn({100003}).to(type);
    const auto relative = [&](const at::Tensor& of) {
      return global_norm(of) / of.to(at::kDouble).norm().item<double>();
    };
    EXPECT_NEAR(relative(values), 1, 1e-7);  // sixteen squares are added up in float
    EXPECT_NEAR(relative(values.narrow(0, 0, 500)), 1, 1e-13);
    if (type == at::kBFloat16) {
      EXPECT_NEAR(relative(values * 1e30), 1, 1e-13);  // beyond float's range
      EXPECT_NEAR(relative(values * 1e-25), 1, 1e-13);
      EXPECT_NEAR(relative(values * 1e-20), 1, 1e-13);
    }
    at::Tensor bad = values.clone();
    bad[70000] = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(std::isinf(global_norm(bad)));
    bad[5] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(std::isnan(global_norm(bad)));
    const auto norms = with_threads([&] { return global_norm(values); });
    for (const double norm : norms) EXPECT_EQ(norm, norms.front());
  }
}

std::vector<OptimizerSpec> all_optimizers() {
  return {AdamW{.learning_rate = 0.01, .weight_decay = 0.1},
          Adam{.learning_rate = 0.01, .weight_decay = 0.1},
          Sgd{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1},
          Sgd{.learning_rate = 0.1},
          Lion{.learning_rate = 0.01, .weight_decay = 0.1},
          Lamb{.learning_rate = 0.01, .weight_decay = 0.1},
          StableAdamW{.learning_rate = 0.01, .weight_decay = 0.1},
          Lars{.learning_rate = 1, .trust_coefficient = 0.01, .weight_decay = 0.1}};
}

const std::vector<MatrixTypes>& mixtures() {
  static const std::vector<MatrixTypes> types{
      {at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kHalf}, {at::kHalf, at::kFloat}, {at::kBFloat16, {}}};
  return types;
}

/// Bits, where neither is NaN.
void expect_same_bits(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  ASSERT_EQ(a.scalar_type(), b.scalar_type()) << what;
  EXPECT_TRUE(torch::equal(a.isnan(), b.isnan())) << what;
  const at::Tensor numbers = a.isnan().logical_not();
  EXPECT_TRUE(torch::equal(a.view(at::kShort).index({numbers}), b.view(at::kShort).index({numbers}))) << what;
}

TEST(MixedPrecision, MastersMoveAsInSinglePrecisionWithRoundedGradients) {
  for (const OptimizerSpec& spec : all_optimizers())
    for (const MatrixTypes& types : mixtures()) {
      Model mixed = make_model(at::kFloat), plain = make_model(at::kFloat);
      parallel::Holding flat_mixed(mixed, types), flat_plain(plain);
      const auto first = make_optimizer(spec), second = make_optimizer(spec);
      first->attach(flat_mixed.target());
      second->attach(flat_plain.target());
      for (int64_t step = 1; step <= 10; ++step) {
        set_gradients(mixed, step);
        for (size_t i = 0; i < plain.parameters.size(); ++i)
          plain.parameters[i]->gradient.copy_(mixed.parameters[i]->gradient);  // as rounded
        for (const auto& optimizer : {first.get(), second.get()})
          optimizer->step({.learning_rate = peak_learning_rate(spec), .gradient_scale = 0.5, .step = step});
        ASSERT_TRUE(torch::equal(masters_of(flat_mixed), masters_of(flat_plain)))
            << optimizer_name(spec) << step;
        expect_same_bits(flat_mixed.target()->shadow,
                         flat_mixed.masters(ParameterKind::matrix).to(*types.compute), optimizer_name(spec));
      }
    }
}

TEST(MixedPrecision, ShadowIsTheMasterRoundedWhateverItHolds) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const OptimizerSpec& spec : all_optimizers())
    for (const MatrixTypes& types : mixtures()) {
      // A rate of 0 keeps the masters, NaN and infinities among them. LAMB and LARS turn all of a layer into
      // NaN with one of its elements, and the shadow must say so as well.
      Model model = make_model(at::kFloat);
      parallel::Holding flat(model, types);
      const at::Tensor weight = model.parameters[0]->master;
      const std::vector<float> special{infinity,       -infinity,     NAN,     65504, 65519.99f, 65520,
                                       1e-7f,          6e-8f,         2.9e-8f, -0.0f, 1e-40f,    3.4e38f,
                                       1 + 1.0f / 256, 1 + 3.0f / 256};
      for (size_t i = 0; i < special.size(); ++i) weight.view(-1)[static_cast<int64_t>(i)] = special[i];
      const auto optimizer = make_optimizer(spec);
      optimizer->attach(flat.target());
      optimizer->step({.learning_rate = 0, .step = 1});
      expect_same_bits(flat.target()->shadow, flat.masters(ParameterKind::matrix).to(*types.compute),
                       optimizer_name(spec));
      EXPECT_TRUE(weight.isnan().any().item<bool>());
      EXPECT_TRUE(torch::equal(model.parameters[2]->compute, model.parameters[2]->master.to(*types.compute)));
    }
}

TEST(MixedPrecision, ZeroesAllGradientsOnRequestAndUpdatesAlike) {
  for (const OptimizerSpec& spec : all_optimizers())
    for (const MatrixTypes& types : {MatrixTypes{}, mixtures()[0], mixtures()[2]}) {
      const auto run = [&](bool zero) {
        Model model = make_model(at::kFloat);
        parallel::Holding flat(model, types);
        const auto optimizer = make_optimizer(spec);
        optimizer->attach(flat.target());
        for (int64_t step = 1; step <= 3; ++step) {
          set_gradients(model, step);
          optimizer->step({.learning_rate = 0.01, .step = step, .zero_gradients = zero});
          EXPECT_EQ(global_norm(*flat.target()) == 0, zero) << optimizer_name(spec);
        }
        return masters_of(flat);
      };
      EXPECT_TRUE(torch::equal(run(true), run(false))) << optimizer_name(spec);
    }
}

/// The model's second matrix is two layers, as query, key and value are.
Model make_sliced_model() {
  Model model = make_model(at::kFloat);
  model.parameters[2]->slices = {{"upper", 0, 3}, {"lower", 3, 7}};
  // The second layer's copy in 16 bits does not begin at a cache line, and has many.
  model.add_parameter("odd", torch::randn({64, 33}), ParameterKind::matrix)->slices = {{"row", 0, 1},
                                                                                       {"rows", 1, 64}};
  return model;
}

TEST(MixedPrecision, UpdatesAreTheSameWhereGradientsAreFreed) {
  for (const OptimizerSpec& spec : all_optimizers())
    for (const MatrixTypes& types : {MatrixTypes{}, mixtures()[0], mixtures()[1]}) {
      Model kept = make_sliced_model(), freed = make_sliced_model();
      const parallel::Holding flat_kept(kept, types);
      parallel::Holding flat_freed(freed, types, /*free_gradients=*/true);
      const auto first = make_optimizer(spec), second = make_optimizer(spec);
      first->attach(flat_kept.target());
      second->attach(flat_freed.target());
      for (int64_t step = 1; step <= 3; ++step) {
        set_gradients(kept, step);
        for (const size_t matrix : {0, 2, 3})
          freed.parameters[matrix]->compute.mutable_grad() = kept.parameters[matrix]->gradient.clone();
        freed.parameters[1]->gradient.copy_(kept.parameters[1]->gradient);
        flat_freed.gradients().collect();
        EXPECT_EQ(global_norm(*flat_freed.target()), global_norm(*flat_kept.target()));
        for (const auto& optimizer : {first.get(), second.get()})
          optimizer->step({.learning_rate = 0.01, .step = step, .zero_gradients = true});
        flat_freed.gradients().start();
        EXPECT_TRUE(torch::equal(masters_of(flat_kept), masters_of(flat_freed)))
            << optimizer_name(spec) << step;
        EXPECT_FALSE(freed.parameters[0]->gradient.defined());
        EXPECT_FALSE(freed.parameters[0]->compute.grad().defined());
      }
    }
}

TEST(MixedPrecision, KnownSumsOfSquaresAreTakenOnceForAParameterAndOnlyWhereGradientsAreFreed) {
  for (const bool frees : {true, false}) {
    Model model = make_sliced_model();
    parallel::Holding flat(model, mixtures()[0], frees);
    if (frees)
      for (const size_t matrix : {0, 2, 3})
        model.parameters[matrix]->compute.mutable_grad() =
            torch::ones_like(model.parameters[matrix]->compute);
    else
      for (const size_t matrix : {0, 2, 3}) model.parameters[matrix]->gradient.fill_(1);
    flat.gradients().collect();
    GradientSquares known;
    double real = 0;
    for (const size_t matrix : {0, 2, 3}) {
      known.set(model.parameters[matrix]->gradient, 1000.0 * static_cast<double>(matrix));
      real += static_cast<double>(model.parameters[matrix]->master.numel());
    }
    if (!frees) known.set(flat.target()->matrix_gradient, 7);
    const auto norm = [&] { return global_norm(*flat.target(), &known); };
    EXPECT_NEAR(norm(), std::sqrt(frees ? 5000 : real), 1e-9);
    if (!frees) continue;
    model.parameters[2]->gradient.mul_(2);  // no longer what it was
    EXPECT_NEAR(norm(), std::sqrt(3000 + 4.0 * static_cast<double>(model.parameters[2]->master.numel())),
                1e-9);
  }
}

TEST(MixedPrecision, IsBitIdenticalForAnyNumberOfThreads) {
  for (const OptimizerSpec& spec : all_optimizers()) {
    const auto results = with_threads([&] {
      Model model = make_model(at::kFloat);
      model.add_parameter("large", torch::randn({1201, 1001}), ParameterKind::matrix);
      parallel::Holding flat(model, mixtures()[0]);
      const auto optimizer = make_optimizer(spec);
      optimizer->attach(flat.target());
      for (int64_t step = 1; step <= 3; ++step) {
        set_gradients(model, step);
        optimizer->step({.learning_rate = 0.01, .step = step, .zero_gradients = true});
      }
      return flat.target()->shadow.clone();
    });
    for (const at::Tensor& result : results) EXPECT_TRUE(torch::equal(result, results.front()));
  }
}

}  // namespace
}  // namespace funicular::optim
