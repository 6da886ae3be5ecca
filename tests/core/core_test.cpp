// Claims about batches and models.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules.h>
#include <torch/types.h>

#include "funicular/base/error.h"
#include "funicular/core/precision.h"
#include "funicular/core/wrap_module.h"
#include "funicular/parallel/holding/holding.h"

namespace funicular {
namespace {

struct TiedImpl : torch::nn::Module {
  torch::nn::Linear first{3, 5};
  torch::nn::BatchNorm1d norm{5};
  torch::Tensor again, scale;
  TiedImpl() {
    register_module("first", first);
    register_module("norm", norm);
    again = register_parameter("again", first->weight);
    scale = register_parameter("scale", torch::ones({}), /*requires_grad=*/false);
  }
};
TORCH_MODULE(Tied);

Model wrap(const Tied& net) {
  return wrap_module(net, [](TiedImpl& net, const MicroBatch& batch, LossSink& sink) {
    sink.add("sum", torch::matmul(net.norm(net.first(batch["x"])), net.again).sum() * net.scale);
  });
}

TEST(WrapModule, NamesATiedWeightOnce) {
  Tied net;
  const Model model = wrap(net);
  std::map<std::string, ParameterKind> kinds;
  for (const auto& parameter : model.parameters) kinds[parameter->name] = parameter->kind;
  ASSERT_EQ(kinds.size(), 5u);  // again (= first.weight), scale, first.bias, norm.weight, norm.bias
  EXPECT_EQ(kinds.count("again") + kinds.count("first.weight"), 1u);
  EXPECT_EQ(kinds.at("first.bias"), ParameterKind::vector);
  EXPECT_EQ(kinds.at("norm.weight"), ParameterKind::vector);
  EXPECT_FALSE(model.find("scale")->trainable);
  EXPECT_EQ(model.parameter_count(), 15 + 1 + 5 + 5 + 5);
  EXPECT_EQ(model.buffers.size(), 3u);  // running mean and variance, batches seen
}

void expect_says(const std::function<void()>& action, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "nothing is refused: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

torch::nn::Sequential three_modules() {
  torch::manual_seed(3);
  const torch::nn::Linear first(4, 5);
  torch::nn::Sequential net(first, torch::nn::BatchNorm1d(5), torch::nn::Linear(5, 4));
  return net;
}

TEST(WrapSequential, HasASegmentForEachModuleWithItsOwnWeights) {
  const Model model = wrap_sequential(three_modules(), "x", torch::zeros({2, 4}), {});
  ASSERT_EQ(model.segments.size(), 3u);
  std::vector<std::vector<std::string>> names;
  for (const Segment& segment : model.segments) {
    names.emplace_back();
    for (const Parameter* parameter : segment.parameters) names.back().push_back(parameter->name);
  }
  EXPECT_EQ(names, (std::vector<std::vector<std::string>>{
                       {"0.weight", "0.bias"}, {"1.weight", "1.bias"}, {"2.weight", "2.bias"}}));
  EXPECT_TRUE(model.segments[0].buffers.empty());
  EXPECT_EQ(model.segments[1].buffers,
            (std::vector<std::string>{"1.running_mean", "1.running_var", "1.num_batches_tracked"}));
}

TEST(WrapSequential, SaysWhatLiesBetweenItsModules) {
  MicroBatch batch;
  batch.tensors["x"] = torch::zeros({7, 4});
  torch::nn::Sequential net = three_modules();
  const Model model = wrap_sequential(net, "x", torch::zeros({2, 4}), {});
  EXPECT_EQ(model.segments[0].outputs.at(0).shape(batch), (std::vector<int64_t>{7, 5}));
  EXPECT_EQ(model.segments[2].inputs.at(0).shape(batch), (std::vector<int64_t>{7, 5}));
  EXPECT_FALSE(model.segments[1].outputs.at(0).type.has_value());  // as the weights: precisions change it
  EXPECT_TRUE(net->is_training());  // one row of zeros went through it in another mode
  EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 0);
}

TEST(WrapSequential, GivesWhatTheModulesGive) {
  MicroBatch batch;
  batch.tensors["x"] = torch::randn({7, 4});
  torch::nn::Sequential net = three_modules(), again = three_modules();
  LossSink sink;
  const Model model =
      wrap_sequential(net, "x", batch["x"], [](const at::Tensor& out, const MicroBatch&, LossSink& loss) {
        loss.add("squares", out.square().sum());
      });
  model.forward({}, batch, {}, sink, {.training = true});
  EXPECT_EQ(sink.total({{"squares", 1}}).item<float>(),
            again->forward(batch["x"]).square().sum().item<float>());
  LossSink evaluated;
  model.forward({}, batch, {}, evaluated, {.training = false});
  again->eval();
  EXPECT_EQ(evaluated.total({{"squares", 1}}).item<float>(),
            again->forward(batch["x"]).square().sum().item<float>());
}

TEST(WrapSequential, GivesAModuleThatWorksInPlaceACopy) {
  MicroBatch batch;
  batch.tensors["x"] = torch::full({3, 4}, -1.0F);
  const at::Tensor before = batch["x"].clone();
  const torch::nn::Sequential net(torch::nn::ReLU(torch::nn::ReLUOptions(true)), torch::nn::Flatten(),
                                  torch::nn::ELU(torch::nn::ELUOptions().inplace(true)));
  LossSink sink;
  const Model model = wrap_sequential(
      net, "x", batch["x"],
      [](const at::Tensor& out, const MicroBatch&, LossSink& loss) { loss.add("sum", out.sum()); });
  EXPECT_TRUE(batch["x"].equal(before)) << "the example is the user's";
  model.forward({}, batch, {}, sink, {.training = true});
  EXPECT_TRUE(batch["x"].equal(before));
  EXPECT_EQ(sink.total({{"sum", 1}}).item<float>(), 0);
}

TEST(WrapSequential, RefusesAModuleThatWorksInPlaceInTrainingAlone) {
  MicroBatch batch;
  batch.tensors["x"] = torch::ones({3, 4});
  const torch::nn::Sequential net(torch::nn::Linear(4, 4),
                                  torch::nn::Dropout(torch::nn::DropoutOptions(0.5).inplace(true)));
  const Model model = wrap_sequential(
      net, "x", batch["x"],
      [](const at::Tensor& out, const MicroBatch&, LossSink& loss) { loss.add("sum", out.sum()); });
  LossSink sink;
  expect_says([&] { model.forward({}, batch, {}, sink, {.training = true}); },
              "module 1 (Dropout) of the Sequential works in place on its input in training");
}

TEST(Segments, NameThemselvesInLibTorchsErrors) {
  MicroBatch batch;
  batch.tensors["x"] = torch::zeros({7, 4});
  batch.packing = Packing::from_lengths({1, 1}, {0, 1}, {0, 1}, {});
  const Model model = wrap_sequential(three_modules(), "x", batch["x"],
                                      [](const at::Tensor& out, const MicroBatch&, LossSink& loss) {
                                        loss.add("sum", out.matmul(torch::zeros({9, 9})).sum());
                                      });
  LossSink sink;
  expect_says([&] { model.forward({}, batch, {}, sink, {.training = true}); },
              "the segment 2 (Linear) fails on 2 samples: mat1 and mat2 shapes");
}

TEST(LossSinks, TakeOneNumberATerm) {
  LossSink sink;
  expect_says([&] { sink.add("rows", torch::ones({3})); }, "the term rows: expected one number");
  expect_says([&] { sink.add("none", at::Tensor()); }, "found 0 numbers");
}

TEST(WrapSequential, HoldsAWeightThatTwoModulesShareOnce) {
  torch::nn::Linear tied(5, 5);
  const torch::nn::Sequential twice(torch::nn::Linear(4, 5), tied, torch::nn::Tanh(), tied);
  const Model shared = wrap_sequential(twice, "x", torch::zeros({2, 4}), {});
  EXPECT_EQ(shared.parameters.size(), 4u);
  EXPECT_EQ(shared.segments[1].parameters, shared.segments[3].parameters);
}

TEST(WrapSequential, RefusesWhatDoesNotFit) {
  const auto refuses = [](const torch::nn::Sequential& net, const at::Tensor& example, const char* part) {
    try {
      wrap_sequential(net, "x", example, {});
      ADD_FAILURE() << "nothing is refused: " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refuses(torch::nn::Sequential(), torch::zeros({2, 4}), "found 0 modules");
  refuses(three_modules(), torch::Tensor(), "no example");
  refuses(three_modules(), torch::zeros({0, 4}), "an example without rows");
  refuses(three_modules(), torch::zeros({2, 3}), "module 0 (Linear) of the Sequential does not take [1, 3]");
  refuses(torch::nn::Sequential(torch::nn::Flatten(torch::nn::FlattenOptions().start_dim(0)),
                                torch::nn::Linear(4, 1)),
          torch::zeros({2, 2, 2}), "become [4] before module 1 (Linear) of the Sequential");
}

TEST(WrapModule, KeepsTheModulesOwnTensors) {
  Tied net;
  Model model = wrap(net);
  const parallel::Holding holding(model);
  holding.masters(ParameterKind::matrix).fill_(0.25);
  EXPECT_EQ(net->first->weight.min().item<float>(), 0.25f);
  EXPECT_EQ(net->again.data_ptr(), net->first->weight.data_ptr());
}

TEST(LossSink, DividesEachTermByItsOwnCount) {
  LossSink sink;
  sink.add("a", torch::tensor(6.0), 2.0);
  sink.add("b", torch::tensor(8.0));
  sink.add("empty", torch::tensor(0.0));
  EXPECT_DOUBLE_EQ(sink.total({{"a", 3}, {"samples", 4}, {"empty", 0}}).item<double>(), 2 * 2 + 2);
  EXPECT_THROW(sink.total({{"a", 3}}), InputError);
}

TEST(Packing, RefusesEmptySequencesAndKnowsItsSizes) {
  EXPECT_THROW(Packing::from_lengths({3, 0}, {0, 1}, {0, 1}, {}), InputError);
  const Packing packing = Packing::from_lengths({3, 5, 2}, {7, 8, 9}, {0, 1, 2}, {});
  EXPECT_EQ(packing.sequences(), 3);
  EXPECT_EQ(packing.tokens(), 10);
  EXPECT_EQ(packing.longest(), 5);
  EXPECT_TRUE(torch::equal(packing.offsets, torch::tensor({0, 3, 8, 10}, torch::kInt)));
}

TEST(MicroBatch, KeepsItsTensorsOnTheHostWhereItIsMovedFromThere) {
  MicroBatch batch;
  batch.packing = Packing::from_lengths({2, 3}, {7, 8}, {4, 5}, {});
  batch.tensors["token_ids"] = at::arange(5);
  batch.counts["mlm"] = 2;
  const MicroBatch moved = batch.to(at::kMeta);  // a device on any machine
  EXPECT_TRUE(moved["token_ids"].is_meta());
  EXPECT_TRUE(moved.packing.positions.is_meta() && moved.packing.draw_ids.is_meta());
  EXPECT_TRUE(at::equal(moved.on_host("token_ids"), at::arange(5)));
  EXPECT_EQ(moved.packing.host_offsets, batch.packing.host_offsets);
  EXPECT_EQ(moved.counts, batch.counts);
  EXPECT_TRUE(at::equal(moved.to(at::kMeta).on_host("token_ids"), at::arange(5)));  // moved again
  EXPECT_TRUE(batch.to(at::kCPU)["token_ids"].is_same(batch["token_ids"]));
  EXPECT_TRUE(batch.on_host("token_ids").is_same(batch["token_ids"]));
}

TEST(Model, GivesItsSegmentsTheBatchOnItsDevice) {
  Model model;
  model.add_parameter("weight", at::zeros({2}, at::kMeta), ParameterKind::matrix);
  bool there = false;
  Segment segment;
  segment.forward = [&](Activations, const Pass& pass) {
    there = pass.batch["token_ids"].is_meta() && pass.batch.on_host("token_ids").is_cpu();
    return Activations{};
  };
  model.segments.push_back(segment);
  MicroBatch batch;
  batch.packing = Packing::from_lengths({5}, {7}, {4}, {});
  batch.tensors["token_ids"] = at::arange(5);
  LossSink loss;
  model.forward({}, batch, {}, loss);
  EXPECT_TRUE(there);
}

/// A segment that adds `step` to what it reads.
Segment adding(const std::string& reads, const std::string& gives, double step) {
  return {reads + " to " + gives, {}, {{reads}}, {{gives}}, [=](Activations in, const Pass&) {
            EXPECT_EQ(in.size(), 1);
            return Activations{{gives, in.at(reads) + step}};
          }};
}

Activations run(const Model& model, const MicroBatch& batch) {
  LossSink loss;
  return model.forward({}, batch, {}, loss);
}

MicroBatch batch_of_x() {
  MicroBatch batch;
  batch.packing = Packing::from_lengths({1}, {0}, {0}, {});
  batch.tensors["x"] = at::ones({1});
  return batch;
}

TEST(Model, GivesASegmentTheNewestOutputOfThatNameAndElseTheBatchsTensor) {
  Model model;
  model.segments = {adding("x", "a", 1), adding("a", "x", 10), adding("x", "a", 100), adding("a", "b", 1000)};
  const Activations out = run(model, batch_of_x());
  ASSERT_EQ(out.size(), 1);
  EXPECT_EQ(out.at("b").item<double>(), 1112);
}

TEST(Model, KeepsAnActivationUntilItsLastReaderAndNoLonger) {
  Model model;
  std::weak_ptr<int> kept;  // lives as long as the activation
  const auto gone_in = [&](bool gone) {
    return Segment{
        gone ? "after" : "before", {}, {{"b"}}, {{"b"}}, [&kept, gone](Activations in, const Pass&) {
          EXPECT_EQ(kept.expired(), gone);
          return in;
        }};
  };
  Segment makes = adding("x", "a", 1);
  makes.outputs.push_back({"b"});
  makes.forward = [&](Activations, const Pass&) {
    auto owner = std::make_shared<int>(1);
    kept = owner;
    const at::Tensor a = at::from_blob(
        owner.get(), {1}, [owner](void*) mutable { owner.reset(); }, at::kInt);
    return Activations{{"a", a}, {"b", at::ones({1})}};
  };
  Segment last_reader = adding("a", "c", 1);
  model.segments = {makes, gone_in(false), last_reader, gone_in(true)};
  const Activations out = run(model, batch_of_x());
  EXPECT_TRUE(out.contains("b"));
}

TEST(Model, RefusesAnInputThatNothingGivesAndAnOutputThatIsNotThere) {
  const auto message = [](Model model) -> std::string {
    try {
      run(model, batch_of_x());
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  Model without, less, more;
  without.segments = {adding("y", "a", 1)};
  EXPECT_NE(message(std::move(without)).find("y to a reads y"), std::string::npos);
  less.segments = {adding("x", "a", 1)};
  less.segments[0].outputs.push_back({"b"});
  EXPECT_NE(message(std::move(less)).find("gave no b"), std::string::npos);
  more.segments = {adding("x", "a", 1)};
  more.segments[0].outputs.clear();
  EXPECT_NE(message(std::move(more)).find("gave 1 activations; it declares 0"), std::string::npos);
}

TEST(Model, RefusesTwoParametersOfOneName) {
  Model model;
  model.add_parameter("weight", torch::zeros({2}), ParameterKind::matrix);
  EXPECT_THROW(model.add_parameter("weight", torch::zeros({2}), ParameterKind::matrix), InputError);
}

TEST(Tf32Products, LastAsLongAsTheirScopeAndChangeNothingOnTheProcessor) {
  const at::Tensor x = torch::rand({32, 32}), before = at::mm(x, x);
  const auto on = [] { return at::globalContext().allowTF32CuBLAS(); };
  const bool was = on();
  for (const bool outside : {false, true}) {
    at::globalContext().setAllowTF32CuBLAS(outside);
    {
      const Tf32Products tf32;
      EXPECT_TRUE(on());
      EXPECT_TRUE(at::equal(at::mm(x, x), before));
    }
    EXPECT_EQ(on(), outside);
  }
  at::globalContext().setAllowTF32CuBLAS(was);
  EXPECT_EQ(precision_name(parse_precision("tf32")), "tf32");
  EXPECT_EQ(master_type(Precision::tf32), at::kFloat);
  EXPECT_FALSE(compute_type(Precision::tf32));
}

TEST(Tf32Products, OfAModelForInferenceLastAsLongAsASegment) {
  const auto on = [] { return at::globalContext().allowTF32CuBLAS(); };
  for (const Precision precision : {Precision::fp32, Precision::tf32}) {
    Model model;
    Parameter* const weight = model.add_parameter("weight", torch::ones({2}), ParameterKind::matrix);
    bool inside = false;
    model.segments.push_back({"only", {weight}, {}, {{"sum"}}, [&](Activations, const Pass&) {
                                inside = on();
                                return Activations{{"sum", weight->compute + 1}};
                              }});
    make_inference(model, precision);
    EXPECT_FALSE(on());
    LossSink loss;
    const Activations sum = model.forward({}, {}, {}, loss);
    EXPECT_EQ(inside, precision == Precision::tf32);
    EXPECT_FALSE(on());
    EXPECT_TRUE(at::equal(sum.at("sum"), torch::full({2}, 2.0)));
    EXPECT_EQ(weight->compute.scalar_type(), at::kFloat);
  }
}

}  // namespace
}  // namespace funicular
