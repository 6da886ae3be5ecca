// Claims about strategies with modules of users: on real processes, against one process.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#include "../comm/ranks.h"
#include "funicular/base/error.h"
#include "funicular/core/recompute.h"
#include "funicular/launch/environment.h"
#include "funicular/parallel/strategy.h"
#include "net.h"

namespace funicular::parallel {
namespace {

using comm::test::is_rank;
using comm::test::on_device_transport;
using comm::test::with_ranks;
using namespace parallel::test;

struct Rig {
  Net net;
  bool with = false;
  Model model;
  std::unique_ptr<Strategy> strategy;

  Rig(const std::string& name, const comm::Group& group, const optim::OptimizerSpec& optimizer,
      int64_t seed = 1, const std::filesystem::path& offload = {}) {
    torch::manual_seed(seed);
    net = Net();
    model = wrap(net, with);
    // A bucket a weight, so that reductions begin wherever they can.
    strategy = make_strategy(name, group,
                             {.compare_every = 1, .offload = offload, .reduction = {.bucket_bytes = 1}});
    strategy->attach(model, optim::make_optimizer(optimizer));
  }

  StepResult step(const std::vector<MicroBatch>& own, int64_t update) {
    Counts counts;
    for (const MicroBatch& batch : own) add_counts(counts, batch.counts);
    with = update % 2 == 0;
    return strategy->step(own, strategy->global_counts(counts),
                          {.learning_rate = 0.01, .max_gradient_norm = 0.5, .update = update});
  }

  /// All weights, whole on every rank afterwards.
  torch::Tensor weights() {
    strategy->detach();
    std::vector<torch::Tensor> all;
    for (const auto& parameter : model.parameters) all.push_back(parameter->compute.detach().flatten());
    return torch::cat(all);
  }
};

const std::vector<std::string> kStrategies = {"ddp", "zero1", "zero2", "zero3", "ps-sync"};

/// The rows of each rank's micro-batches in a step: uneven, and none on one rank at times.
std::vector<MicroBatch> share(const torch::Tensor& rows, const DataShare& part, int64_t step) {
  const int64_t rank = part.index, ranks = part.count;
  std::vector<MicroBatch> own;
  if (rank >= ranks) return own;  // a server
  for (int64_t row = rank; row < rows.size(0); row += ranks)
    if (step != 3 || rank == 0) own.push_back(make_batch(rows.narrow(0, row, 1)));
  if (step == 3 && rank == 0)
    for (int64_t row = 0; row < rows.size(0); ++row)
      if (row % ranks != 0) own.push_back(make_batch(rows.narrow(0, row, 1)));
  return own;
}

TEST(Strategies, AModuleWithTiedUnusedAndFrozenWeightsTrainsAsInOneProcess) {
  const auto body = [] {
    const auto group = comm::Group::from_environment();
    std::vector<optim::OptimizerSpec> optimizers{optim::AdamW{.weight_decay = 0.1}};
    if (!on_device_transport())
      optimizers.insert(optimizers.end(),
                        {optim::Lamb{}, optim::Lars{}, optim::Sgd{.momentum = 0.9},
                         optim::Lion{.weight_decay = 0.1}, optim::StableAdamW{.weight_decay = 0.1}});
    for (const optim::OptimizerSpec& optimizer : optimizers) {
      for (const std::string& name : kStrategies) {
        if (name == "ps-sync" && group.size() == 1) continue;
        // Other seeds: attach makes all ranks begin with rank 0's weights.
        Rig ours(name, group, optimizer, 1 + group.rank()), reference("single", {}, optimizer, 1);
        for (int64_t step = 1; step <= 5; ++step) {
          torch::manual_seed(step);
          const auto rows = torch::randn({7, 5}, torch::kDouble);
          const DataShare part = ours.strategy->data_share();
          const StepResult a = ours.step(share(rows, part, step), step);
          const StepResult b = reference.step({make_batch(rows)}, step);
          ASSERT_TRUE(a.finite);
          EXPECT_NEAR(a.loss, b.loss, 1e-11) << name << " step " << step;
          EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-11) << name << " step " << step;
        }
        EXPECT_LT((ours.weights() - reference.weights()).abs().max().item<double>(), 1e-11) << name;
      }
    }
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  };
  for (const int ranks : on_device_transport() ? std::vector{3} : std::vector{1, 2, 3, 4}) {
    with_ranks(ranks, body);
    if (is_rank()) return;
  }
}

/// Passes its input on; calls a function when the gradient comes back.
struct Probe : torch::autograd::Function<Probe> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const std::function<void()>* reached) {
    context->saved_data["reached"] = reinterpret_cast<int64_t>(reached);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    (*reinterpret_cast<const std::function<void()>*>(context->saved_data["reached"].toInt()))();
    return {gradients[0], {}};
  }
};

/// Names its weights in another order than that in which it uses them, one of them never.
struct TowerImpl : torch::nn::Module {
  torch::nn::Linear top{6, 6}, never{6, 6}, bottom{6, 6};
  TowerImpl() {
    register_module("top", top);
    register_module("never", never);
    register_module("bottom", bottom);
    to(torch::kDouble);
  }
};
TORCH_MODULE(Tower);

/// Two ranks, a bucket a weight, train a Tower with this loss as one process does.
void expect_tower_follows_one_process(
    const std::function<void(TowerImpl&, const MicroBatch&, LossSink&)>& loss) {
  with_ranks(2, [&] {
    const auto group = comm::Group::from_environment();
    const auto train = [&](const comm::Group& ranks, const torch::Tensor& rows) {
      torch::manual_seed(1);
      Tower tower;
      Model model = wrap_module(tower, loss);
      const auto strategy = make_strategy("auto", ranks, {.reduction = {.bucket_bytes = 1}});
      strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
      for (int64_t update = 1; update <= 3; ++update) {
        const auto batch = make_batch(rows);
        strategy->step({&batch, 1}, strategy->global_counts(batch.counts),
                       {.learning_rate = 0.01, .update = update});
      }
      return torch::cat({tower->top->weight.detach(), tower->bottom->weight.detach()});
    };
    const auto rows = torch::linspace(-1, 1, 24, torch::kDouble).view({4, 6});
    const auto ours = train(group, rows.narrow(0, 2 * group.rank(), 2));
    EXPECT_LT((ours - train({}, rows)).abs().max().item<double>(), 1e-12);
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Ddp, AModuleOfOneSegmentIsReducedWhileItsBackwardPassGoesOn) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    torch::manual_seed(1);
    Tower tower;
    std::function<void()> at_bottom = [] {};
    Model model = wrap_module(tower, [&](TowerImpl& module, const MicroBatch& batch, LossSink& sink) {
      const auto weight = Probe::apply(module.bottom->weight, &at_bottom);
      sink.add("all", module.top(torch::matmul(batch["x"], weight)).sum());
    });
    const auto ddp = make_strategy("ddp", group, {.reduction = {.bucket_bytes = 1}});
    ddp->attach(model, optim::make_optimizer(optim::Sgd{}));
    const auto step = [&](int64_t update) {
      const auto batch = make_batch(torch::ones({1, 6}, torch::kDouble) * (1 + group.rank()));
      ddp->step({&batch, 1}, {{"all", 2}}, {.learning_rate = 0, .update = update});
    };
    step(1);  // tells the order
    // Each rank's gradient of the top follows from its own rows, and the sum from both.
    torch::Tensor seen;
    {
      Model alone = wrap_module(tower, [&](TowerImpl& module, const MicroBatch& batch, LossSink& sink) {
        sink.add("all", module.top(torch::matmul(batch["x"], module.bottom->weight)).sum());
      });
      LossSink sink;
      const auto both = make_batch(torch::ones({1, 6}, torch::kDouble) * 3);
      alone.forward({}, both, {}, sink);
      const auto of_both = torch::autograd::grad({sink.total({{"all", 2}})}, {tower->top->weight})[0];
      at_bottom = [&] {  // the last that this pass computes
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        do {
          seen = tower->top->weight.grad().clone();
        } while (!torch::allclose(seen, of_both) && std::chrono::steady_clock::now() < deadline);
      };
      step(2);
      EXPECT_TRUE(torch::allclose(seen, of_both))
          << "while the bottom's gradient is not there, the top's is the sum over the ranks";
    }
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Ddp, RoundedAndOrderedSumsOfAModuleOfOneSegmentFollowOneProcess) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    const auto train = [&](const comm::Group& ranks, const StrategyOptions& options) {
      bool with = true;
      torch::manual_seed(1);
      Net net;
      net->to(torch::kFloat);
      Model model = wrap(net, with);
      const auto strategy = make_strategy("auto", ranks, options);
      strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
      for (int64_t update = 1; update <= 4; ++update) {
        with = update != 2;
        std::vector<MicroBatch> own;
        Counts counts;
        for (int64_t row = ranks.rank(); row < 8; row += ranks.size()) {
          own.push_back(
              make_batch(torch::full({1, 5}, 0.1 * static_cast<double>(row + update), torch::kFloat)));
          add_counts(counts, own.back().counts);
        }
        strategy->step(own, strategy->global_counts(counts), {.learning_rate = 0.01, .update = update});
      }
      std::vector<torch::Tensor> all;
      for (const auto& parameter : model.parameters) all.push_back(parameter->compute.detach().flatten());
      return torch::cat(all);
    };
    const auto one = train({}, {});
    const auto rounded = train(group, {.reduction = {.bucket_bytes = 1, .type = at::kBFloat16}});
    EXPECT_GT((rounded - one).abs().max().item<float>(), 0) << "sixteen bits round";
    EXPECT_LT((rounded - one).abs().max().item<float>(), 1e-3);
    const auto ordered = train(group, {.deterministic = true, .reduction = {.bucket_bytes = 1}});
    EXPECT_LT((ordered - one).abs().max().item<float>(), 1e-6);
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Ddp, ABackwardPassWithinTheForwardPassIsNoneOfTheStep) {
  expect_tower_follows_one_process([](TowerImpl& module, const MicroBatch& batch, LossSink& sink) {
    // A step against the gradient of its own, as adversarial training takes; it leaves sums in .grad.
    auto x = batch["x"].detach().requires_grad_();
    module.top(torch::tanh(module.bottom(x))).square().sum().backward();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // what began too early would be over
    sink.add("all", module.top(torch::tanh(module.bottom(x + 0.1 * x.grad()))).square().sum());
  });
}

TEST(Ddp, AModuleIsFreeForAnotherStrategyOnceDetached) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    Tower tower;
    Model model = wrap_module(tower, [](TowerImpl& module, const MicroBatch& batch, LossSink& sink) {
      sink.add("all", module.top(module.bottom(batch["x"])).sum());
    });
    const auto has_hook = [&] {
      return torch::autograd::impl::post_acc_grad_hooks(tower->top->weight) != nullptr;
    };
    auto first = make_strategy("ddp", group), second = make_strategy("ddp", group);
    first->attach(model, optim::make_optimizer(optim::Sgd{}));
    EXPECT_TRUE(has_hook());
    first->detach();
    EXPECT_FALSE(has_hook());
    second->attach(model, optim::make_optimizer(optim::Sgd{}));
    first.reset();
    EXPECT_TRUE(has_hook()) << "those of the second";
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Ddp, AWeightUsedWithinAndWithoutARecomputedPartIsReducedOnce) {
  // Time for a reduction that began too early to end before the inner gradient arrives.
  const std::function<void()> pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
  expect_tower_follows_one_process([&](TowerImpl& module, const MicroBatch& batch, LossSink& sink) {
    const auto inner = [&](const std::vector<at::Tensor>& in) {
      const auto between = Probe::apply(module.top(in[0]), &pause);
      return std::vector<at::Tensor>{torch::tanh(module.bottom(between))};
    };
    const auto hidden = recomputed({batch["x"]}, module.parameters(), inner)[0];
    sink.add("all", module.top(hidden).square().sum());
  });
}

TEST(Strategies, WhatIsNotFiniteOnOneRankIsNamedOnAllAndChangesNothing) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    for (const std::string& name : kStrategies) {
      Rig rig(name, group, optim::Sgd{});
      auto rows = torch::ones({1, 5}, torch::kDouble);
      if (group.rank() == 1) rows[0][2] = NAN;
      const auto own = [&](const torch::Tensor& x) {  // a server has none
        const DataShare part = rig.strategy->data_share();
        return part.index < part.count ? std::vector<MicroBatch>{make_batch(x)} : std::vector<MicroBatch>{};
      };
      const StepResult result = rig.step(own(rows), 1);
      EXPECT_FALSE(result.finite) << name;
      EXPECT_EQ(result.non_finite_loss, "all");
      EXPECT_EQ(result.non_finite_gradient, "tied") << name;
      // The next step is as if this one had not been.
      Rig fresh(name, group, optim::Sgd{});
      const auto good = torch::ones({1, 5}, torch::kDouble) * (1 + group.rank());
      const StepResult a = rig.step(own(good), 1), b = fresh.step(own(good), 1);
      EXPECT_EQ(a.loss, b.loss);
      EXPECT_EQ(a.gradient_norm, b.gradient_norm);
      EXPECT_TRUE(torch::equal(rig.weights(), fresh.weights())) << name;
    }
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Strategies, OnADeviceRefuseGroupsThatCarryNoneOfItsTensors) {
  const auto refusal = []() -> std::string {
    const bool with = true;
    Net net;
    Model model = wrap(net, with);
    model.parameters.front()->compute = torch::empty({8, 5}, torch::kMeta);
    try {
      make_strategy("ddp", comm::Group::imagined(0, 2))->attach(model, optim::make_optimizer(optim::Sgd{}));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const std::optional<std::string> before = launch::process_variable("FUNICULAR_TRANSPORT");
  ::unsetenv("FUNICULAR_TRANSPORT");
  const std::string unset = refusal();
  ::setenv("FUNICULAR_TRANSPORT", "host", 1);
  const std::string host = refusal();
  before ? ::setenv("FUNICULAR_TRANSPORT", before->c_str(), 1) : ::unsetenv("FUNICULAR_TRANSPORT");
  EXPECT_NE(unset.find("exchange no tensors of that device; expected a group with GroupOptions::device"),
            std::string::npos)
      << unset;
  EXPECT_NE(host.find("unset FUNICULAR_TRANSPORT, which is \"host\""), std::string::npos) << host;
}

TEST(Strategies, AWeightThatOneRankAloneChangedIsNoticedAndNamed) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    Rig rig("ddp", group, optim::Sgd{});
    const auto rows = torch::ones({1, 5}, torch::kDouble);
    rig.step({make_batch(rows)}, 1);
    if (group.rank() == 1) rig.net->second->bias.data()[1] += 1e-13;
    std::string message;
    try {
      rig.step({make_batch(rows)}, 2);
    } catch (const RunError& error) {
      message = error.what();
    }
    EXPECT_NE(message.find("weights of rank 1"), std::string::npos) << message;
    EXPECT_NE(message.find("second.bias"), std::string::npos) << message;
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Strategies, EachElementOfTheStateIsOwnedOnce) {
  with_ranks(3, [] {
    const auto group = comm::Group::from_environment();
    struct Owned final : StateVisitor {
      std::map<std::string, int64_t> elements, all;
      void visit(const StateSlice& slice) override {
        int64_t size = 1;
        for (const int64_t n : slice.shape) size *= n;
        all[slice.label() + " " + slice.name] = size;
        elements[slice.label() + " " + slice.name] += slice.owned ? slice.local.numel() : 0;
      }
    };
    for (const std::string& name : kStrategies) {
      Rig rig(name, group, optim::AdamW{});
      Owned owned;
      rig.strategy->visit_state(owned);
      ASSERT_FALSE(owned.elements.empty()) << name;
      for (const auto& [key, own] : owned.elements) {
        const torch::Tensor sum = torch::full({1}, own, torch::kLong);
        group.all_reduce(sum);
        EXPECT_EQ(sum.item<int64_t>(), owned.all.at(key)) << name << " " << key;
      }
    }
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Strategies, StateInMappedFilesIsTheSameAndTheFilesGoWithIt) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    const auto folder =
        std::filesystem::temp_directory_path() / ("funicular-offload-" + std::to_string(::getpid()));
    for (const std::string& name : kStrategies) {
      Rig mapped(name, group, optim::AdamW{}, 1, folder), plain(name, group, optim::AdamW{}, 1);
      std::ifstream maps("/proc/self/maps");
      const std::string text{std::istreambuf_iterator<char>(maps), {}};
      const bool has_state = name != "ps-sync" || group.rank() == 1;  // not a worker
      EXPECT_EQ(text.find(folder.string() + "/funicular-state-") != std::string::npos, has_state) << name;
      EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the files have no name any more";
      for (int64_t step = 1; step <= 3; ++step) {
        torch::manual_seed(step);
        const auto rows = torch::randn({4, 5}, torch::kDouble);
        mapped.step(share(rows, mapped.strategy->data_share(), 1), step);
        plain.step(share(rows, plain.strategy->data_share(), 1), step);
      }
      EXPECT_TRUE(torch::equal(mapped.weights(), plain.weights())) << name;
    }
    std::filesystem::remove_all(folder);
    group.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Strategies, AFolderThatCannotHoldTheStateIsNamed) {
  std::string message;
  try {
    Rig rig("single", {}, optim::AdamW{}, 1, "/proc/nowhere");
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("/proc/nowhere"), std::string::npos) << message;
}

}  // namespace
}  // namespace funicular::parallel
