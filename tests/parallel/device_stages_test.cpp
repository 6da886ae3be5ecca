// Claims about stages on devices of one process: they train as one device and as processes do, and show themselves as one rank.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "../comm/ranks.h"
#include "cut_rig.h"
#include "funicular/base/error.h"
#include "funicular/parallel/layout.h"

namespace funicular::parallel::device_stages_tests {
namespace {

using test::batches_of;
using test::CutRig;
using test::make_cut_model;

Model make_copied_model(const std::function<void()>& disturb = {}) {
  Model model = make_cut_model(1, disturb);
  model.replicate = [disturb] {
    return make_cut_model(2, disturb);
  };  // other weights: attach brings the first's
  return model;
}

Layout on_devices(int devices, const std::string& schedule = "1f1b", const std::string& stages = {}) {
  LayoutOptions options{.strategy = "pipeline", .devices = devices, .schedule = schedule};
  if (!stages.empty()) options.stages = parse_stages(stages);
  return options.layout();
}

CutRig rig_of(const Layout& layout,
              const optim::OptimizerSpec& optimizer = optim::AdamW{.weight_decay = 0.1}) {
  return {make_copied_model(), make_strategy(layout, {}, {.compare_every = 1}), optimizer};
}

/// By kind and name.
struct Shown final : StateVisitor {
  void visit(const StateSlice& slice) override {
    EXPECT_TRUE(slice.owned) << slice.name;
    int64_t elements = 1;
    for (const int64_t size : slice.shape) elements *= size;
    EXPECT_EQ(slice.local.numel(), elements) << slice.name;
    EXPECT_TRUE(
        tensors.emplace(slice.label() + " " + slice.name, slice.local.clone().view(slice.shape)).second);
    names.push_back(slice.name);
  }
  std::map<std::string, at::Tensor> tensors;
  std::vector<std::string> names;
};

void expect_same(const Shown& ours, const Shown& one) {
  EXPECT_EQ(ours.names, one.names);
  for (const auto& [name, tensor] : one.tensors)
    EXPECT_LT((ours.tensors.at(name) - tensor).abs().max().item<double>(), 1e-11) << name;
}

void expect_follows_one_device(const Layout& layout, const optim::OptimizerSpec& optimizer) {
  CutRig ours = rig_of(layout, optimizer), one(make_cut_model(1), make_single(), optimizer);
  int64_t step = 0;
  for (const int64_t count : {5, 1, 2, 7}) {
    const std::vector<MicroBatch> batches = batches_of(++step, count);
    const StepResult a = ours.step(batches, step), b = one.step(batches, step);
    EXPECT_NEAR(a.loss, b.loss, 1e-12 * std::abs(b.loss));
    EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-11 * b.gradient_norm);
    EXPECT_EQ(a.losses.size(), 2u);
  }
  Shown shown, expected;
  ours.strategy->visit_state(shown);
  one.strategy->visit_state(expected);
  expect_same(shown, expected);
  ours.strategy->with_whole_model([&] {
    for (const auto& parameter : one.model.parameters)
      EXPECT_LT((ours.model.find(parameter->name)->master - parameter->master).abs().max().item<double>(),
                1e-11)
          << parameter->name;
  });
  const auto own = ours.weights(), others = one.weights();
  for (const auto& [name, value] : others)
    EXPECT_LT((own.at(name) - value).abs().max().item<double>(), 1e-11) << name;
}

TEST(DeviceStages, OfEverySynchronousScheduleTrainAsOneDevice) {
  for (const int devices : {1, 2, 3, 5})
    for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1"})
      expect_follows_one_device(on_devices(devices, schedule), optim::AdamW{.weight_decay = 0.1});
  for (const char* schedule : {"interleaved", "looped-bfs", "zb-v", "v-half"})
    expect_follows_one_device(on_devices(2, schedule), optim::AdamW{.weight_decay = 0.1});
  for (const optim::OptimizerSpec& optimizer :
       {optim::OptimizerSpec(optim::Lamb{}), optim::OptimizerSpec(optim::Lars{}),
        optim::OptimizerSpec(optim::Sgd{.momentum = 0.9}), optim::OptimizerSpec(optim::Adam{})})
    expect_follows_one_device(on_devices(2, "naive", "0,2"), optimizer);
  expect_follows_one_device(on_devices(3, "1f1b", "0x2,2"), optim::AdamW{});  // a stage on two devices
}

TEST(DeviceStages, GiveTheBitsOfAsManyProcesses) {
  comm::test::with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    CutRig processes(make_copied_model(), make_strategy(Layout::parse("pipeline --schedule gpipe"), group),
                     optim::AdamW{});
    CutRig devices = rig_of(on_devices(2, "gpipe"), optim::AdamW{});
    for (int64_t step = 1; step <= 3; ++step) {
      const std::vector<MicroBatch> batches = batches_of(step, 5);
      EXPECT_EQ(processes.step(batches, step).gradient_norm, devices.step(batches, step).gradient_norm);
    }
    const auto own = devices.weights(), others = processes.weights();
    for (const auto& [name, value] : others) EXPECT_TRUE(torch::equal(own.at(name), value)) << name;
    comm::test::finish_rank();
  });
}

TEST(DeviceStages, EachHoldWhatTheirStagesNeedAlone) {
  CutRig ours = rig_of(on_devices(2, "1f1b", "0,3"));
  const std::vector<MicroBatch> batches = batches_of(1, 4);
  ours.step(batches, 1);
  // The first device's model has let go of what only the second stage uses.
  EXPECT_GT(ours.model.find("first")->compute.numel(), 0);
  EXPECT_EQ(ours.model.find("bias")->compute.numel(), 0);
  ours.strategy->detach();
  EXPECT_EQ(ours.model.find("bias")->compute.numel(), test::kWords);
}

TEST(DeviceStages, ShowGradientsEvaluationsAndActivationsAsOneDeviceDoes) {
  CutRig ours = rig_of(on_devices(3)),
         one(make_cut_model(1), make_single(), optim::AdamW{.weight_decay = 0.1});
  const std::vector<MicroBatch> batches = batches_of(1, 4);
  Counts counts;
  for (const MicroBatch& batch : batches) add_counts(counts, batch.counts);
  const auto seen_in = [&](CutRig& rig) {
    Shown gradients;
    int calls = 0;
    rig.strategy->step(batches, counts, {.learning_rate = 0.01, .update = 1, .inspect = [&] {
                                           ++calls;
                                           rig.strategy->visit_gradients(gradients);
                                         }});
    EXPECT_EQ(calls, 1);
    return gradients;
  };
  expect_same(seen_in(ours), seen_in(one));
  const EvalResult a = ours.strategy->evaluate(batches), b = one.strategy->evaluate(batches);
  EXPECT_EQ(a.counts, b.counts);
  EXPECT_EQ(a.weights, b.weights);
  for (const auto& [name, sum] : b.sums) EXPECT_NEAR(a.sums.at(name), sum, 1e-11) << name;
  ASSERT_EQ(a.outputs.size(), b.outputs.size());
  for (size_t i = 0; i < b.outputs.size(); ++i)
    EXPECT_TRUE(torch::allclose(a.outputs[i].at("logits"), b.outputs[i].at("logits"), 1e-11, 1e-11));
  EXPECT_EQ(ours.strategy->group().size(), 1);
  EXPECT_EQ(ours.strategy->pieces(), 3);
  EXPECT_EQ(ours.strategy->data_share().count, 1);
}

TEST(DeviceStages, GoOnFromAStateThatIsWrittenToThem) {
  CutRig ours = rig_of(on_devices(3)),
         first(make_cut_model(1), make_single(), optim::AdamW{.weight_decay = 0.1});
  for (CutRig* rig : {&ours, &first}) rig->step(batches_of(1, 3), 1);
  ours.step(batches_of(9, 2), 2);  // goes astray, and is brought back
  Shown state;
  first.strategy->visit_state(state);
  struct Writer final : StateVisitor {
    explicit Writer(const Shown& values) : values(values) {}
    void visit(const StateSlice& slice) override {
      slice.local.copy_(values.tensors.at(slice.label() + " " + slice.name).view(slice.local.sizes()));
    }
    const Shown& values;
  } writer(state);
  {
    const torch::NoGradGuard no_gradient;
    ours.strategy->visit_state(writer);
  }
  ours.strategy->state_changed();
  for (CutRig* rig : {&ours, &first}) rig->step(batches_of(2, 3), 2);
  const auto own = ours.weights(), expected = first.weights();
  for (const auto& [name, value] : expected)
    EXPECT_LT((own.at(name) - value).abs().max().item<double>(), 1e-11) << name;
}

TEST(DeviceStages, WithFrozenWeightsTrainAsOneDevice) {
  const auto freeze = [](Model model) {
    for (const char* name : {"first", "bias"}) {
      model.find(name)->trainable = false;
      model.find(name)->compute.set_requires_grad(false);
    }
    return model;
  };
  CutRig ours(freeze(make_copied_model()), make_strategy(on_devices(3), {}), optim::AdamW{}),
      one(freeze(make_cut_model(1)), make_single(), optim::AdamW{});
  for (CutRig* rig : {&ours, &one}) rig->step(batches_of(1, 4), 1);
  // What a checkpoint brings of them reaches every device.
  struct Shift final : StateVisitor {
    void visit(const StateSlice& slice) override {
      if (slice.kind == StateSlice::Kind::model && (slice.name == "first" || slice.name == "bias"))
        slice.local.add_(0.25);
    }
  } shift;
  for (CutRig* rig : {&ours, &one}) {
    {
      const torch::NoGradGuard no_gradient;
      rig->strategy->visit_state(shift);
    }
    rig->strategy->state_changed();
    rig->step(batches_of(2, 4), 2);
  }
  const auto own = ours.weights(), expected = one.weights();
  for (const auto& [name, value] : expected)
    EXPECT_LT((own.at(name) - value).abs().max().item<double>(), 1e-11) << name;
}

TEST(DeviceStages, AnErrorOnOneDeviceEndsTheStepWithThatError) {
  for (const char* stages : {"0,2", "0,3"}) {  // on the second device, and on the first
    bool fails = false;
    CutRig ours(make_copied_model([&] {
                  if (fails) throw std::invalid_argument("disturbed");
                }),
                make_strategy(on_devices(2, "gpipe", stages), {}), optim::Sgd{});
    ours.step(batches_of(1, 4), 1);
    fails = true;
    EXPECT_THROW(ours.step(batches_of(2, 4), 2), std::invalid_argument);
    EXPECT_THROW(ours.step(batches_of(3, 4), 3), std::exception);
  }
}

TEST(DeviceStages, WhatCannotBeIsRefused) {
  const auto error_of = [](const std::function<void()>& action) -> std::string {
    try {
      action();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const auto refuses = [&](const Layout& layout, const std::string& part, int ranks = 1) {
    const std::string error = error_of([&] { layout.on(ranks); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  const auto sliced = Layout::parse("pipeline --devices 2 --tensor-parallel 2"),
             divided = Layout::parse("pipeline --devices 2 --zero 1"),
             replicas = Layout::parse("pipeline --devices 2 --data-parallel 2"),
             more = Layout::parse("pipeline --devices 2 --pipeline-parallel 3");
  for (const Layout& layout : {sliced, divided, on_devices(2, "pipedream")})
    refuses(layout, "funicular launch -n 2");
  refuses(replicas, "leave out --devices 2");
  refuses(more, "--pipeline-parallel 3 and --devices 2");
  refuses(on_devices(2), "there are 3 ranks", 3);
  refuses(Layout::parse("ddp --devices 2"), "goes with dp or with a pipeline");
  EXPECT_EQ(on_devices(3).on(1).pipeline, 3);
  EXPECT_EQ(on_devices(3).on(1).on(1), on_devices(3).on(1)) << "what is settled stays";
  EXPECT_NE(error_of([] {
              CutRig(make_cut_model(1), make_strategy(on_devices(2), {}), optim::Sgd{});
            }).find("Model::replicate"),
            std::string::npos);
}

}  // namespace
}  // namespace funicular::parallel::device_stages_tests
