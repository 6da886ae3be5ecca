// Claims about the marks of a weight: what weight decay and trust ratios act on, whatever the weight's kind.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <optional>
#include <vector>

#include "funicular/optim/optimizer.h"
#include "funicular/optim/optimizer_kind.h"
#include "funicular/parallel/holding/holding.h"
#include "tests/team_kernels.h"

namespace funicular::optim {
namespace marks {
namespace {

struct Marks {
  ParameterKind kind = ParameterKind::matrix;
  std::optional<bool> weight_decay{}, trust_ratio{};
};

/// A weight of several blocks after six steps.
at::Tensor trained(const OptimizerSpec& spec, const Marks& marks, const MatrixTypes& types = {},
                   bool team = false) {
  const TeamKernels kernels(team);
  torch::manual_seed(5);
  Model model;
  Parameter* const weight =
      model.add_parameter("weight", torch::randn({67, 131}).to(kernels.place()), marks.kind);
  weight->weight_decay = marks.weight_decay;
  weight->trust_ratio = marks.trust_ratio;
  // Each kind has one more, so that no buffer is empty.
  model.add_parameter("matrix", torch::ones({3, 5}).to(kernels.place()), ParameterKind::matrix);
  model.add_parameter("vector", torch::ones({5}).to(kernels.place()), ParameterKind::vector);
  parallel::Holding flat(model, types);
  const auto optimizer = make_optimizer(spec);
  optimizer->attach(flat.target());
  for (int64_t step = 1; step <= 6; ++step) {
    torch::manual_seed(100 + step);
    for (const auto& parameter : model.parameters)
      parameter->gradient.copy_(torch::randn(parameter->master.sizes()));
    optimizer->step({.learning_rate = 0.01, .gradient_scale = 0.5, .step = step});
  }
  return weight->master.detach().cpu().clone();
}

std::vector<OptimizerSpec> specs(double decay) {
  return {AdamW{.weight_decay = decay},
          Adam{.weight_decay = decay},
          Sgd{.momentum = 0.9, .weight_decay = decay},
          Lion{.weight_decay = decay},
          Lamb{.weight_decay = decay},
          StableAdamW{.weight_decay = decay},
          Lars{.trust_coefficient = 0.5, .weight_decay = decay}};
}

bool has_trust_ratio(const OptimizerSpec& spec) {
  return spec.kind().layer_norms && !spec.as<StableAdamW>();  // which looks at the gradient alone
}

TEST(ParameterMarks, AreThoseOfTheKindUnlessGiven) {
  for (const OptimizerSpec& spec : specs(0.1))
    for (const auto kind : {ParameterKind::matrix, ParameterKind::vector}) {
      const bool matrix = kind == ParameterKind::matrix;
      EXPECT_TRUE(torch::equal(trained(spec, {kind}), trained(spec, {kind, matrix, matrix})))
          << optimizer_name(spec) << matrix;
    }
}

/// In the papers' convention every layer has a ratio but those that say otherwise.
TEST(ParameterMarks, OverruleThePapersConvention) {
  for (const OptimizerSpec& paper :
       {OptimizerSpec(Lamb{.weight_decay = 0.1, .trust_ratio = TrustRatio::paper}),
        OptimizerSpec(
            Lars{.trust_coefficient = 0.5, .weight_decay = 0.1, .trust_ratio = TrustRatio::paper})}) {
    const Marks plain{ParameterKind::vector, true, {}}, without{ParameterKind::vector, true, false},
        with{ParameterKind::vector, true, true};
    EXPECT_TRUE(torch::equal(trained(paper, plain), trained(paper, with))) << optimizer_name(paper);
    EXPECT_FALSE(torch::equal(trained(paper, plain), trained(paper, without))) << optimizer_name(paper);
  }
}

TEST(ParameterMarks, DecideAloneWhateverTheKind) {
  for (const OptimizerSpec& spec : specs(0.1)) {
    const auto result = [&](ParameterKind kind, bool decay, bool ratio) {
      return trained(spec, {kind, decay, ratio});
    };
    for (const bool decay : {false, true})
      for (const bool ratio : {false, true})
        EXPECT_TRUE(torch::equal(result(ParameterKind::matrix, decay, ratio),
                                 result(ParameterKind::vector, decay, ratio)))
            << optimizer_name(spec) << decay << ratio;
    for (const bool other : {false, true}) {
      const at::Tensor plain = result(ParameterKind::matrix, false, other);
      EXPECT_FALSE(torch::equal(plain, result(ParameterKind::matrix, true, other))) << optimizer_name(spec);
      EXPECT_EQ(torch::equal(result(ParameterKind::matrix, other, false),
                             result(ParameterKind::matrix, other, true)),
                !has_trust_ratio(spec))
          << optimizer_name(spec);
    }
  }
}

/// Where the update writes the copy of 16 bits, too.
TEST(ParameterMarks, HoldInMixedPrecision) {
  for (const auto half : {at::kBFloat16, at::kHalf})
    for (const MatrixTypes& types : {MatrixTypes{half, half}, MatrixTypes{half, {}}}) {
      const std::vector<OptimizerSpec> with = specs(0.1), without = specs(0);
      for (size_t i = 0; i < with.size(); ++i) {
        const Marks spared{ParameterKind::matrix, false, {}};
        EXPECT_TRUE(torch::equal(trained(with[i], spared, types), trained(without[i], {}, types)))
            << optimizer_name(with[i]);
        EXPECT_FALSE(torch::equal(trained(with[i], {}, types), trained(without[i], {}, types)))
            << optimizer_name(with[i]);
      }
    }
}

TEST(ParameterMarks, HoldInThePassesOfGpus) {
  for (const OptimizerSpec& spec : specs(0.1))
    for (const auto kind : {ParameterKind::matrix, ParameterKind::vector})
      for (const bool decay : {false, true})
        for (const bool ratio : {false, true}) {
          const Marks marks{kind, decay, ratio};
          const at::Tensor team = trained(spec, marks, {}, true), processor = trained(spec, marks);
          EXPECT_LT((team - processor).abs().max().item<double>(), 1e-6) << optimizer_name(spec);
        }
}

/// Rows of a table whose gradients are sparse.
TEST(ParameterMarks, HoldForRowsOfEmbeddings) {
  const auto trained_rows = [](double rate, std::optional<bool> decay) {
    torch::manual_seed(6);
    Model model;
    model.add_parameter("table", torch::randn({50, 40}), ParameterKind::matrix)->weight_decay = decay;
    model.add_parameter("vector", torch::ones({5}), ParameterKind::vector);
    model.makes_row_gradients = true;
    parallel::Holding flat(model, {}, /*free_gradients=*/true, /*row_gradients=*/true);
    const auto optimizer = make_optimizer(AdamW{.weight_decay = rate});
    optimizer->attach(flat.target());
    for (int64_t step = 1; step <= 4; ++step) {
      flat.gradients().start();
      const at::Tensor rows = torch::tensor({step, step + 7}), values = torch::randn({2, 40});
      model.parameters[0]->compute.mutable_grad() =
          at::_sparse_coo_tensor_unsafe(rows.view({1, 2}), values, {50, 40},
                                        values.options().layout(at::kSparse))
              ._coalesced_(true);
      model.parameters[1]->gradient.fill_(1);
      flat.gradients().collect();
      optimizer->step({.learning_rate = 0.01, .step = step, .zero_gradients = true});
    }
    return model.parameters[0]->master.detach().clone();
  };
  EXPECT_TRUE(torch::equal(trained_rows(0.1, false), trained_rows(0, {})));
  EXPECT_FALSE(torch::equal(trained_rows(0.1, {}), trained_rows(0, {})));
}

}  // namespace
}  // namespace marks
}  // namespace funicular::optim
