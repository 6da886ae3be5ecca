// Claims about BatchNorm in modules of users: its statistics over micro-batches and ranks, against one large batch.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/core/recompute.h"
#include "funicular/core/wrap_module.h"
#include "funicular/parallel/batch_norm_sums.h"
#include "funicular/parallel/strategy.h"
#include "net.h"

namespace funicular::parallel {
namespace {

constexpr double kSame = 1e-12;

/// A convolution and two layers, with a BatchNorm of images, one of rows and one without weights and with the mean of
/// all steps. Ranks are threads, which share LibTorch's generator.
torch::nn::Sequential make_normed(torch::Dtype type = torch::kDouble) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(3);
  torch::nn::Sequential net;
  net->push_back("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 2)));
  net->push_back("images", torch::nn::BatchNorm2d(torch::nn::BatchNormOptions(3).momentum(0.3)));
  net->push_back("relu", torch::nn::ReLU());
  net->push_back("flatten", torch::nn::Flatten());
  net->push_back("first", torch::nn::Linear(12, 6));
  net->push_back("rows", torch::nn::BatchNorm1d(6));
  net->push_back("tanh", torch::nn::Tanh());
  net->push_back("second", torch::nn::Linear(6, 2));
  net->push_back("bare",
                 torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(2).affine(false).momentum(std::nullopt)));
  net->to(type);
  return net;
}

torch::Tensor loss_of(const torch::Tensor& out, const torch::Tensor& x) {
  return (out - x.flatten(1).narrow(1, 0, 2)).square().sum();
}

torch::Tensor images_of(int64_t rows, int64_t seed = 5) {
  torch::manual_seed(seed);
  return torch::randn({rows, 2, 3, 3}, torch::kDouble) * 2 + 1;
}

/// One segment recomputes nothing: with recomputation each module is a segment.
Model model_of(const torch::nn::Sequential& net, torch::Dtype type, Recompute recompute) {
  const auto add_loss = [](const torch::Tensor& out, const MicroBatch& batch, LossSink& sink) {
    sink.add("all", loss_of(out, batch["x"]));
  };
  if (recompute != Recompute::none)
    return wrap_sequential(net, "x", torch::zeros({1, 2, 3, 3}, type), add_loss);
  return wrap_module(net, [add_loss](torch::nn::SequentialImpl& module, const MicroBatch& batch,
                                     LossSink& sink) { add_loss(module.forward(batch["x"]), batch, sink); });
}

struct NormRig {
  torch::nn::Sequential net;
  torch::Dtype type;
  Recompute recompute;
  Model model;
  std::unique_ptr<Strategy> strategy;

  NormRig(const std::string& name, const comm::Group& group, BatchStatistics over,
          Recompute again = Recompute::none, torch::Dtype numbers = torch::kDouble)
      : net(make_normed(numbers)), type(numbers), recompute(again), model(model_of(net, type, recompute)) {
    strategy = make_strategy(name, group, {.reduction = {.bucket_bytes = 1}});
    strategy->use_batch_statistics(over);
    strategy->attach(model, optim::make_optimizer(optim::Sgd{.momentum = 0.9}));
  }
  void step(const std::vector<torch::Tensor>& own, int64_t update) {
    std::vector<MicroBatch> batches;
    Counts counts;
    for (const torch::Tensor& x : own) {
      batches.push_back(test::make_batch(x.to(type)));
      add_counts(counts, batches.back().counts);
    }
    strategy->step(batches, strategy->global_counts(counts),
                   {.learning_rate = 0.05, .update = update, .recompute = recompute});
  }
};

std::map<std::string, torch::Tensor> buffers_of(const torch::nn::Module& net) {
  std::map<std::string, torch::Tensor> all;
  for (const auto& one : net.named_buffers()) all[one.key()] = one.value().clone();
  return all;
}

std::map<std::string, torch::Tensor> tensors_of(const torch::nn::Module& net) {
  std::map<std::string, torch::Tensor> all = buffers_of(net);
  for (const auto& one : net.named_parameters()) all[one.key()] = one.value().detach().clone();
  return all;
}

/// "name: difference" of the first tensor that is further apart; "" if there is none. Only names with `part` in them.
std::string apart(const std::map<std::string, torch::Tensor>& a,
                  const std::map<std::string, torch::Tensor>& b, const std::string& part = "",
                  double most = kSame) {
  for (const auto& [name, value] : a) {
    if (name.find(part) == std::string::npos) continue;
    const double found =
        (value.to(torch::kDouble) - b.at(name).to(torch::kDouble)).abs().max().item<double>();
    if (!(found <= most)) return name + ": " + std::to_string(found);
  }
  return "";
}

/// PyTorch alone: the whole batch in one pass, its mean loss, momentum's update.
std::map<std::string, torch::Tensor> reference(const std::vector<torch::Tensor>& batches) {
  torch::nn::Sequential net = make_normed();
  std::map<std::string, torch::Tensor> velocity;
  for (const torch::Tensor& x : batches) {
    net->train();
    net->zero_grad();
    (loss_of(net->forward(x), x) / x.size(0)).backward();
    const torch::NoGradGuard no_gradient;
    for (auto& one : net->named_parameters()) {
      torch::Tensor& v = velocity.try_emplace(one.key(), torch::zeros_like(one.value())).first->second;
      v = 0.9 * v + one.value().grad();
      one.value().sub_(0.05 * v);
    }
  }
  return tensors_of(*net);
}

/// Each rank's body in a thread.
void on_threads(int ranks, const std::function<void(const comm::Group&)>& body) {
  const std::vector<comm::Group> groups = comm::Group::in_threads(ranks);
  std::vector<std::thread> threads;
  for (const comm::Group& group : groups)
    threads.emplace_back([&body, group] {
      try {
        body(group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << group.rank() << ": " << error.what();
        group.leave(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(BatchNorm, AsLibTorchMovesItsStatisticsInEachPass) {
  const torch::Tensor x = images_of(12);
  NormRig rig("single", {}, BatchStatistics::pass);
  rig.step({x.narrow(0, 0, 5), x.narrow(0, 5, 7)}, 1);
  EXPECT_EQ(buffers_of(*rig.net).at("rows.num_batches_tracked").item<int64_t>(), 2);
  EXPECT_NE(apart(tensors_of(*rig.net), reference({x}), "images.running"), "");
}

TEST(BatchNorm, OverMicroBatchesHasTheRunningStatisticsOfOneLargeBatch) {
  const torch::Tensor x = images_of(12), y = images_of(12, 6);
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    NormRig rig("single", {}, BatchStatistics::batch, recompute);
    rig.step({x.narrow(0, 0, 5), x.narrow(0, 5, 4), x.narrow(0, 9, 3)}, 1);
    // What the first module of each kind reads does not depend on how the batch is cut; the rest reads what it
    // normalised.
    EXPECT_EQ(apart(tensors_of(*rig.net), reference({x}), "images.running"), "");
    EXPECT_EQ(apart(tensors_of(*rig.net), reference({x}), "num_batches_tracked"), "");
    NormRig whole("single", {}, BatchStatistics::batch, recompute),
        plain("single", {}, BatchStatistics::pass, recompute);
    for (NormRig* each : {&whole, &plain}) {
      each->step({x}, 1);
      each->step({y}, 2);
      EXPECT_EQ(apart(tensors_of(*each->net), reference({x, y})), "");
    }
  }
}

/// The largest difference of the tensors with `part` in their names.
double distance(const std::map<std::string, torch::Tensor>& a, const std::map<std::string, torch::Tensor>& b,
                const std::string& part) {
  double most = 0;
  for (const auto& [name, value] : a)
    if (name.find(part) != std::string::npos)
      most = std::max(most,
                      (value.to(torch::kDouble) - b.at(name).to(torch::kDouble)).abs().max().item<double>());
  return most;
}

/// Prints how far running statistics are from one large batch's after a step
/// (docs/project/measurements/2026-11-28-techniques.md).
TEST(BatchNorm, OverMicroBatchesComesNearerToOneLargeBatch) {
  const torch::Tensor x = images_of(96);
  std::map<BatchStatistics, double> first, second;
  for (const BatchStatistics over : {BatchStatistics::pass, BatchStatistics::batch}) {
    NormRig rig("single", {}, over);
    std::vector<torch::Tensor> cut;
    for (int64_t row = 0; row < 96; row += 12) cut.push_back(x.narrow(0, row, 12));
    rig.step(cut, 1);
    first[over] = distance(tensors_of(*rig.net), reference({x}), "images.running");
    second[over] = distance(tensors_of(*rig.net), reference({x}), "rows.running");
    std::cout << "[ " << batch_statistics_names()[static_cast<size_t>(over)] << ": first BatchNorm "
              << first[over] << ", second " << second[over] << " ]\n";
  }
  EXPECT_LT(first[BatchStatistics::batch], kSame);
  EXPECT_GT(first[BatchStatistics::pass], 0.1);
  EXPECT_LT(second[BatchStatistics::batch], 0.3 * second[BatchStatistics::pass]);
}

TEST(BatchNorm, OverMicroBatchesOnRanksHasTheStatisticsOfOneLargeBatchOnEachOfThem) {
  const torch::Tensor x = images_of(12);
  for (const char* name : {"ddp", "zero1", "zero3"})
    on_threads(3, [&](const comm::Group& group) {
      NormRig rig(name, group, BatchStatistics::batch);
      // The last rank has no rows, and the first moves what it has not seen.
      const std::vector<torch::Tensor> shares[] = {
          {x.narrow(0, 0, 3), x.narrow(0, 3, 4)}, {x.narrow(0, 7, 5)}, {}};
      rig.step(shares[group.rank()], 1);
      EXPECT_EQ(apart(buffers_of(*rig.net), reference({x}), "images.running"), "")
          << name << " " << group.rank();
      EXPECT_EQ(apart(buffers_of(*rig.net), reference({x}), "tracked"), "") << name << " " << group.rank();
    });
}

TEST(BatchNorm, OverRanksTrainsTheModelOfOneLargeBatch) {
  const std::vector<torch::Tensor> batches{images_of(12), images_of(12, 6), images_of(12, 7)};
  const auto expected = reference(batches);
  for (const char* name : {"ddp", "zero1", "zero2", "zero3"})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      on_threads(2, [&](const comm::Group& group) {
        NormRig rig(name, group, BatchStatistics::ranks, recompute);
        for (size_t step = 0; step < batches.size(); ++step)
          rig.step({group.rank() == 0 ? batches[step].narrow(0, 0, 5) : batches[step].narrow(0, 5, 7)},
                   static_cast<int64_t>(step) + 1);
        rig.strategy->detach();
        EXPECT_EQ(apart(tensors_of(*rig.net), expected, "", 1e-11), "")
            << name << " " << recompute_name(recompute) << " on rank " << group.rank();
      });
    }
}

TEST(BatchNorm, OverRanksWithUnequalMicroBatchesIsRefused) {
  on_threads(2, [&](const comm::Group& group) {
    NormRig rig("ddp", group, BatchStatistics::ranks);
    const torch::Tensor x = images_of(6);
    std::string said;
    try {
      rig.step(group.rank() == 0 ? std::vector{x} : std::vector{x.narrow(0, 0, 3), x.narrow(0, 3, 3)}, 1);
    } catch (const RunError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find("one rank has 1 micro-batches in this step where another has 2"), std::string::npos)
        << said;
  });
}

/// The tensors of a module after one step of a strategy with this rank's micro-batches.
template <class Holder>
std::map<std::string, torch::Tensor> after_a_step(const std::string& name, const comm::Group& group,
                                                  BatchStatistics over,
                                                  const std::vector<torch::Tensor>& own) {
  const Holder net;
  Model model =
      wrap_module(net, [](typename Holder::ContainedType& module, const MicroBatch& batch, LossSink& sink) {
        sink.add("all", module.forward(batch["x"]).square().sum());
      });
  const std::unique_ptr<Strategy> strategy = make_strategy(name, group);
  strategy->use_batch_statistics(over);
  strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
  std::vector<MicroBatch> batches;
  Counts counts;
  for (const torch::Tensor& x : own) {
    batches.push_back(test::make_batch(x));
    add_counts(counts, batches.back().counts);
  }
  strategy->step(batches, strategy->global_counts(counts), {.learning_rate = 0.05, .update = 1});
  strategy->detach();
  return tensors_of(*net);
}

torch::nn::Linear even_linear(int64_t inputs) {
  const torch::NoGradGuard no_gradient;
  torch::nn::Linear linear(inputs, 2);
  linear->weight.fill_(0.3);
  linear->bias.fill_(0.1);
  return linear;
}

struct InstancesImpl : torch::nn::Module {
  torch::nn::InstanceNorm2d norm{torch::nn::InstanceNormOptions(2).affine(true).track_running_stats(true)};
  torch::nn::Linear last = even_linear(2);
  InstancesImpl() {
    register_module("norm", norm);
    register_module("last", last);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return last(torch::tanh(norm(x) * x).mean({2, 3})); }
};
TORCH_MODULE(Instances);

TEST(BatchNorm, LeavesInstanceNormToLibTorch) {
  const torch::Tensor x = images_of(6);
  const auto expected = after_a_step<Instances>("single", {}, BatchStatistics::pass, {x});
  on_threads(2, [&](const comm::Group& group) {
    const auto found =
        after_a_step<Instances>("ddp", group, BatchStatistics::ranks, {x.narrow(0, 3 * group.rank(), 3)});
    for (const char* part : {"weight", "bias"}) EXPECT_EQ(apart(found, expected, part), "") << group.rank();
  });
  const std::vector<torch::Tensor> parts{x.narrow(0, 0, 2), x.narrow(0, 2, 4)};
  EXPECT_EQ(apart(after_a_step<Instances>("single", {}, BatchStatistics::batch, parts),
                  after_a_step<Instances>("single", {}, BatchStatistics::pass, parts)),
            "");
}

/// A Siamese network: its modules normalise one input after the other.
struct TwinsImpl : torch::nn::Module {
  torch::nn::BatchNorm1d norm{4}, mean{torch::nn::BatchNormOptions(4).momentum(std::nullopt)};
  torch::nn::Linear last = even_linear(4);
  TwinsImpl() {
    register_module("norm", norm);
    register_module("mean", mean);
    register_module("last", last);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor rows = x.flatten(1), left = rows.narrow(1, 0, 4),
                        right = rows.narrow(1, 4, 4).square();
    const torch::Tensor first = norm(left) + mean(left);
    return last(first - norm(right) * mean(right));
  }
};
TORCH_MODULE(Twins);

TEST(BatchNorm, OfAModuleThatAPassCallsTwiceMovesTwiceAsInOneLargeBatch) {
  const torch::Tensor x = images_of(12);
  Twins whole;
  whole->forward(x);
  const auto expected = buffers_of(*whole);
  ASSERT_EQ(expected.at("norm.num_batches_tracked").item<int64_t>(), 2);
  const std::vector<torch::Tensor> shares[] = {
      {x.narrow(0, 0, 3), x.narrow(0, 3, 4)}, {x.narrow(0, 7, 5)}, {}};
  EXPECT_EQ(apart(expected, after_a_step<Twins>("single", {}, BatchStatistics::batch,
                                                {shares[0][0], shares[0][1], shares[1][0]})),
            "");
  on_threads(3, [&](const comm::Group& group) {
    EXPECT_EQ(
        apart(expected, after_a_step<Twins>("ddp", group, BatchStatistics::batch, shares[group.rank()])), "")
        << group.rank();
  });
}

/// The text of the InputError that `body` throws, or "".
std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(BatchNorm, IsRefusedByStrategiesThatDoNotHaveItAndOnAGpu) {
  for (const char* name : {"dp", "pipeline", "tensor"}) {
    const std::unique_ptr<Strategy> strategy = make_strategy(name, {});
    EXPECT_EQ(refusal_of([&] { strategy->use_batch_statistics(BatchStatistics::pass); }), "");
    const std::string said = refusal_of([&] { strategy->use_batch_statistics(BatchStatistics::batch); });
    EXPECT_NE(said.find(std::string("found the strategy ") + name), std::string::npos) << said;
  }
  const at::Device gpu(at::kCUDA, 0), cpu(at::kCPU);
  EXPECT_EQ(refusal_of([&] { check_batch_statistics(BatchStatistics::pass, false, gpu); }), "");
  EXPECT_EQ(refusal_of([&] { check_batch_statistics(BatchStatistics::ranks, false, cpu); }), "");
  const std::string said = refusal_of([&] { check_batch_statistics(BatchStatistics::batch, false, gpu); });
  EXPECT_NE(said.find("batch_statistics is batch and the model is on cuda:0"), std::string::npos) << said;
}

TEST(BatchNorm, OverRanksIsRefusedWithDeterministicSums) {
  const auto attached = [](BatchStatistics over) {
    return refusal_of([&] {
      Model model = wrap_module(Twins(), [](TwinsImpl&, const MicroBatch&, LossSink&) {});
      const std::unique_ptr<Strategy> strategy = make_strategy("zero1", {}, {.deterministic = true});
      strategy->use_batch_statistics(over);
      strategy->attach(model, optim::make_optimizer(optim::Sgd{}));
    });
  };
  EXPECT_EQ(attached(BatchStatistics::pass), "");
  EXPECT_EQ(attached(BatchStatistics::batch), "");
  const std::string said = attached(BatchStatistics::ranks);
  EXPECT_NE(said.find("deterministic and batch_statistics ranks contradict each other"), std::string::npos)
      << said;
}

TEST(BatchNorm, InFloatIsNearThatInDouble) {
  const torch::Tensor x = images_of(12);
  on_threads(2, [&](const comm::Group& group) {
    NormRig rig("ddp", group, BatchStatistics::ranks, Recompute::none, torch::kFloat);
    rig.step({x.narrow(0, group.rank() * 6, 6)}, 1);
    EXPECT_EQ(apart(tensors_of(*rig.net), reference({x}), "", 1e-4), "");
  });
}

}  // namespace
}  // namespace funicular::parallel
