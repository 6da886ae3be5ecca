// Claims about recomputed activations: the same gradients to the last bit, and less memory.
#include "funicular/core/recompute.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "funicular/base/error.h"
#include "funicular/core/wrap_module.h"
#include "funicular/format/model_config.h"
#include "funicular/model/encoder.h"
#include "funicular/nn/functional.h"
#include "funicular/parallel/holding/holding.h"
#include "funicular/runtime/allocator.h"
#include "tests/core/units.h"

namespace funicular {
namespace {

struct Trained {
  std::map<std::string, at::Tensor> gradients;
  std::map<std::string, at::Tensor> buffers;
  std::vector<LossSink::Term> terms;
  TensorMap outputs;
};

/// Two micro-batches in a row, so that gradients add up, as in a step with accumulation.
Trained train(Model& model, Recompute mode, const MicroBatch& batch, const Counts& counts) {
  for (const auto& parameter : model.parameters) parameter->compute.mutable_grad().reset();
  Trained run;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    LossSink sink;
    sink.keep_outputs = true;
    forward_recomputed(model, mode, {}, batch, {}, sink);
    sink.total(counts).backward();
    run.terms = sink.terms();
    run.outputs = sink.outputs();
  }
  for (const auto& parameter : model.parameters)
    if (parameter->compute.grad().defined())
      run.gradients[parameter->name] = parameter->compute.grad().clone();
  for (const Buffer& buffer : model.buffers) run.buffers[buffer.name] = buffer.value.clone();
  return run;
}

void expect_identical(const std::map<std::string, at::Tensor>& a,
                      const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) EXPECT_TRUE(torch::equal(value, b.at(name))) << name;
}

void expect_identical(const Trained& a, const Trained& b) {
  expect_identical(a.gradients, b.gradients);
  expect_identical(a.buffers, b.buffers);
  expect_identical(a.outputs, b.outputs);
  ASSERT_EQ(a.terms.size(), b.terms.size());
  for (size_t i = 0; i < a.terms.size(); ++i) {
    EXPECT_EQ(a.terms[i].name, b.terms[i].name);
    EXPECT_EQ(a.terms[i].weight, b.terms[i].weight);
    EXPECT_TRUE(torch::equal(a.terms[i].sum, b.terms[i].sum)) << a.terms[i].name;
  }
}

// ---- BERT

model::ModelOptions bert_options(model::Head head, at::ScalarType dtype, int64_t hidden = 32) {
  model::ModelOptions options;
  options.config.encoder.vocabulary = 100;
  options.config.encoder.width = hidden;
  options.config.encoder.layers = 7;
  options.config.encoder.heads = 2;
  options.config.encoder.feed_forward.width = 4 * hidden;
  options.config.num_labels = 3;
  options.head = head;
  options.dtype = dtype;
  options.seed = 3;
  return options;
}

MicroBatch bert_batch(const std::vector<int32_t>& lengths) {
  std::vector<int64_t> draws(lengths.size());
  for (size_t i = 0; i < draws.size(); ++i) draws[i] = static_cast<int64_t>(100 + i);
  MicroBatch batch;
  batch.packing = Packing::from_lengths(lengths, draws, draws, {.seed = 7, .training = true});
  const int64_t tokens = batch.packing.tokens();
  batch.tensors["token_ids"] = (torch::arange(tokens) * 37 + 5) % 100;
  batch.tensors["token_type_ids"] = torch::zeros({tokens}, torch::kLong);
  batch.tensors["mlm_rows"] = torch::arange(0, tokens, 5);
  batch.tensors["mlm_labels"] = torch::arange(0, tokens, 5) % 100;
  batch.tensors["labels"] = torch::arange(batch.packing.sequences()) % 3;
  return batch;
}

std::vector<Recompute> modes_of(const Model& model) {
  std::vector<Recompute> modes = {Recompute::full, Recompute::sqrt};
  if (model.recomputes_attention) modes.push_back(Recompute::selective);
  return modes;
}

TEST(Recompute, GivesBertTheSameGradientsToTheLastBit) {
  const MicroBatch batch = bert_batch({9, 1, 30, 17});
  for (const model::Head head : {model::Head::masked_lm, model::Head::classification})
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      Model model = model::build_model(bert_options(head, dtype));
      const Counts counts{{"mlm", 12}, {"classification", 4}};
      const Trained expected = train(model, Recompute::none, batch, counts);
      ASSERT_GE(expected.gradients.size(), 7u * 12);
      for (const Recompute mode : modes_of(model)) {
        SCOPED_TRACE(recompute_name(mode) + " " + c10::toString(dtype));
        expect_identical(expected, train(model, mode, batch, counts));
      }
    }
}

TEST(Recompute, GivesBertTheSameGradientsInMixedPrecision) {
  const MicroBatch batch = bert_batch({9, 1, 30, 17});
  for (const MatrixTypes types : {MatrixTypes{at::kBFloat16, at::kBFloat16}, MatrixTypes{at::kHalf, {}}}) {
    Model model = model::build_model(bert_options(model::Head::masked_lm, at::kFloat));
    parallel::Holding flat(model, types);
    const auto gradients = [&](Recompute mode) {
      flat.gradients().zero();
      LossSink sink;
      forward_recomputed(model, mode, {}, batch, {}, sink);
      sink.total({{"mlm", 12}}).backward();
      std::map<std::string, at::Tensor> result;
      for (const FlatLayout::Entry& entry : flat.layout().entries())
        result[entry.parameter->name] = entry.parameter->gradient.clone();
      return result;
    };
    const auto expected = gradients(Recompute::none);
    EXPECT_GT(expected.at("bert.embeddings.word_embeddings.weight").abs().max().item<double>(), 0);
    for (const Recompute mode : modes_of(model)) {
      SCOPED_TRACE(recompute_name(mode) + " " + c10::toString(*types.compute));
      expect_identical(expected, gradients(mode));
    }
  }
}

TEST(Recompute, LeavesFrozenPartsAlone) {
  const MicroBatch batch = bert_batch({9, 30});
  Model model = model::build_model(bert_options(model::Head::masked_lm, at::kFloat));
  for (const auto& parameter : model.parameters) {
    const std::string& name = parameter->name;
    const bool frozen = name.find("embeddings") != std::string::npos ||
                        name.find("layer.0") != std::string::npos ||
                        name.find("layer.3") != std::string::npos;
    parameter->trainable = !frozen;
    parameter->compute.set_requires_grad(!frozen);
  }
  const Trained expected = train(model, Recompute::none, batch, {{"mlm", 8}});
  EXPECT_FALSE(expected.gradients.contains("bert.embeddings.word_embeddings.weight"));
  for (const Recompute mode : modes_of(model))
    expect_identical(expected, train(model, mode, batch, {{"mlm", 8}}));
}

/// Highest bytes of large tensors alive in a forward and backward pass, over those before it.
int64_t peak_of_step(Model& model, Recompute mode, const MicroBatch& batch) {
  train(model, mode, batch, {{"mlm", 100}});  // gradients are made
  const int64_t before = allocator_statistics().used;
  reset_allocator_peak();
  LossSink sink;
  forward_recomputed(model, mode, {}, batch, {}, sink);
  sink.total({{"mlm", 100}}).backward();
  return allocator_statistics().peak_used - before;
}

TEST(Recompute, KeepsOnlyTheInputsOfGroups) {
  if (!use_caching_allocator())
    GTEST_SKIP() << "bytes are counted by the caching allocator, which is not in use";
  Model model = model::build_model(bert_options(model::Head::masked_lm, at::kFloat, 128));
  const MicroBatch batch =
      bert_batch(std::vector<int32_t>(20, 100));  // one activation: 2,000 × 128 floats, 1 MB
  const double none = static_cast<double>(peak_of_step(model, Recompute::none, batch));
  const double full = static_cast<double>(peak_of_step(model, Recompute::full, batch));
  const double sqrt = static_cast<double>(peak_of_step(model, Recompute::sqrt, batch));
  EXPECT_GE(none, 7 * 10 * kMiB);
  EXPECT_LE(full, 0.45 * none);  // 8 inputs and one layer, of 7 layers
  EXPECT_LE(sqrt, 0.65 * none);  // 2 inputs and 3 layers
}

// ---- modules of users

/// Blocks with LibTorch's own dropout and normalisation over the batch: a stateful generator, and buffers.
struct BlockImpl : torch::nn::Module {
  torch::nn::Linear linear{16, 16};
  torch::nn::BatchNorm1d norm{16};
  torch::nn::Dropout dropout{0.4};
  BlockImpl() {
    register_module("linear", linear);
    register_module("norm", norm);
    register_module("dropout", dropout);
  }
  at::Tensor forward(const at::Tensor& x) { return x + dropout(torch::gelu(norm(linear(x)))); }
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  explicit NetImpl(bool saving) : recomputes(saving) {
    for (int i = 0; i < 3; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& module : *blocks) {
      const auto block = std::dynamic_pointer_cast<BlockImpl>(module);
      const auto call = [block](const std::vector<at::Tensor>& in) {
        return std::vector{block->forward(in[0])};
      };
      x = recomputes ? recomputed({x}, block->parameters(), call)[0] : call({x})[0];
      x = torch::dropout(x, 0.1, is_training());  // what is drawn after a block must not depend on it
    }
    return x;
  }
  bool recomputes;
  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Net);

MicroBatch plain_batch() {
  MicroBatch batch;
  batch.packing = Packing::from_lengths({1, 1, 1, 1, 1, 1}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5},
                                        {.seed = 5, .training = true});
  torch::manual_seed(8);
  batch.tensors["x"] = torch::randn({6, 16}, torch::kDouble);
  return batch;
}

TEST(Recompute, RepeatsTheDropoutOfAUsersModule) {
  const MicroBatch batch = plain_batch();
  const auto run = [&](bool recomputes) {
    torch::manual_seed(1);
    Net net(recomputes);
    net->to(torch::kDouble);
    Model model = wrap_module(net, [](NetImpl& net, const MicroBatch& batch, LossSink& sink) {
      sink.add("square", net.forward(batch["x"]).square().sum());
    });
    Trained result = train(model, Recompute::none, batch, {{"samples", 6}});
    result.buffers.clear();  // the helper says that it writes them twice
    return result;
  };
  const Trained plain = run(false);
  EXPECT_GE(plain.gradients.size(), 12u);
  expect_identical(plain, run(true));
}

/// A chain of segments made by hand, of LibTorch's modules; every one but the first adds a loss term, and
/// "skip" travels past the second and third one, which do not know it, and the others, which read it.
Model chain(int64_t length) {
  torch::manual_seed(2);
  Model model;
  auto blocks = std::make_shared<std::vector<Block>>();
  model.owners.push_back(blocks);
  for (int64_t i = 0; i < length; ++i) {
    Block block;
    block->to(torch::kDouble);
    blocks->push_back(block);
    Segment segment;
    segment.name = "block." + std::to_string(i);
    for (const auto& named : block->named_parameters()) {
      Parameter* const parameter =
          model.add_parameter(segment.name + "." + named.key(), named.value(), ParameterKind::matrix);
      parameter->master = parameter->compute = named.value();
      segment.parameters.push_back(parameter);
    }
    for (const auto& named : block->named_buffers())
      model.buffers.push_back({segment.name + "." + named.key(), named.value()});
    segment.inputs = {{"x"}};
    segment.outputs = {{"x"}};
    if (i == 0 || i > 2) (i == 0 ? segment.outputs : segment.inputs).push_back({"skip"});
    segment.forward = [block, i](Activations in, const Pass& pass) mutable {
      const at::Tensor skip = i == 0   ? in["x"].sum(1).to(torch::kLong)
                              : i <= 2 ? torch::ones({in["x"].size(0)}, torch::kLong)
                                       : in["skip"];
      Activations out{{"x", block->forward(in["x"])}};
      if (i == 0) out["skip"] = skip;
      pass.taps("block", out["x"]);
      if (i > 0)
        pass.loss.add("term." + std::to_string(i % 3), (out["x"] * skip.unsqueeze(1)).sum(), 0.5 + i);
      pass.loss.output("x." + std::to_string(i), out["x"]);
      return out;
    };
    model.segments.push_back(std::move(segment));
  }
  return model;
}

Trained train_chain(int64_t length, Recompute mode) {
  Model model = chain(length);
  torch::manual_seed(77);
  return train(model, mode, plain_batch(), {{"samples", 6}});
}

TEST(Recompute, HoldsForLossTermsDropoutAndBuffersInAnySegment) {
  for (const int64_t length : {2, 3, 10}) {
    const Trained expected = train_chain(length, Recompute::none);
    for (const Recompute mode : {Recompute::full, Recompute::sqrt}) {
      SCOPED_TRACE(fmt::format("{} segments, {}", length, recompute_name(mode)));
      expect_identical(expected, train_chain(length, mode));
    }
  }
}

TEST(Recompute, ShowsAnObserverEachValueOnceAndStillRecomputes) {
  const auto watched = [](Recompute mode) {
    Model model = chain(4);
    torch::manual_seed(77);
    LossSink sink;
    std::vector<std::pair<std::string, at::Tensor>> seen;
    const Taps taps{[&](std::string_view name, const at::Tensor& value) {
      seen.emplace_back(name, value.detach().clone());
    }};
    const int64_t before = recomputed_runs();
    forward_recomputed(model, mode, {}, plain_batch(), taps, sink);
    sink.total({{"samples", 6}}).backward();
    std::map<std::string, at::Tensor> gradients;
    for (const auto& parameter : model.parameters) gradients[parameter->name] = parameter->compute.grad();
    return std::tuple(seen, gradients, recomputed_runs() - before);
  };
  const auto [plain, plain_gradients, none] = watched(Recompute::none);
  ASSERT_EQ(plain.size(), 4U);
  EXPECT_EQ(none, 0);
  for (const Recompute mode : {Recompute::full, Recompute::sqrt}) {
    const auto [seen, gradients, runs] = watched(mode);
    EXPECT_GT(runs, 0);
    ASSERT_EQ(seen.size(), plain.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      EXPECT_EQ(seen[i].first, plain[i].first);
      EXPECT_TRUE(torch::equal(seen[i].second, plain[i].second)) << seen[i].first;
    }
    expect_identical(gradients, plain_gradients);
  }
}

TEST(Recompute, RunsOnceWithoutGradients) {
  int64_t runs = 0;
  const auto count = [&](const std::vector<at::Tensor>& in) {
    ++runs;
    return std::vector{in[0] * 2};
  };
  const at::Tensor x = torch::ones({3}).set_requires_grad(true);
  {
    const at::NoGradGuard no_gradient;
    EXPECT_FALSE(recomputed({x}, {}, count)[0].requires_grad());
  }
  EXPECT_FALSE(recomputed({x.detach()}, {}, count)[0].requires_grad());
  EXPECT_EQ(runs, 2);
  const at::Tensor y = recomputed({x}, {}, count)[0];
  y.sum().backward();
  EXPECT_EQ(runs, 4);
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 2.0)));
}

TEST(Recompute, HandsBackInputsAndTypesWithoutGradientsAsTheyAre) {
  const at::Tensor x = torch::ones({3}).set_requires_grad(true),
                   w = torch::full({3}, 3.0).set_requires_grad(true);
  const auto results = recomputed({x}, {w}, [w](const std::vector<at::Tensor>& in) {
    const at::Tensor product = in[0] * w;
    return std::vector{product, in[0], product, product.argmax()};
  });
  ASSERT_EQ(results.size(), 4u);
  EXPECT_TRUE(results[1].is_same(x));
  EXPECT_TRUE(results[2].is_same(results[0]));
  EXPECT_FALSE(results[3].requires_grad());
  (results[0] + results[1] + results[2]).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 7.0)));
  EXPECT_TRUE(torch::equal(w.grad(), torch::full({3}, 2.0)));
}

TEST(Recompute, NestsInItself) {
  const at::Tensor x = torch::randn({4}).set_requires_grad(true);
  const TensorFunction inner = [](const std::vector<at::Tensor>& in) {
    return std::vector{torch::dropout(in[0].sin(), 0.5, true)};
  };
  const TensorFunction outer = [&](const std::vector<at::Tensor>& in) {
    return recomputed({recomputed(in, {}, inner)[0].exp()}, {}, inner);
  };
  torch::manual_seed(4);
  inner({inner({x})[0].exp()})[0].sum().backward();
  const at::Tensor expected = x.grad().clone();
  x.mutable_grad().reset();
  torch::manual_seed(4);
  recomputed({x}, {}, outer)[0].sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), expected));
}

TEST(Recompute, KeepsTheGeneratorWhereTheForwardPassLeftIt) {
  const at::Tensor x = torch::ones({100}).set_requires_grad(true);
  torch::manual_seed(4);
  const at::Tensor y =
      recomputed({x}, {}, [](const auto& in) { return std::vector{torch::dropout(in[0], 0.5, true)}; })[0];
  torch::rand({3});  // what others draw before the backward pass is drawn by no one again
  const at::Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), y.detach()));  // the same units: 0 or 2
  EXPECT_TRUE(torch::equal(at::globalContext().defaultGenerator(at::kCPU).get_state(), state));
}

TEST(Recompute, RunsAgainUnderTheAutocastOfTheFirstRun) {
  const at::Tensor x = torch::randn({8, 8}).set_requires_grad(true),
                   w = torch::randn({8, 8}).set_requires_grad(true);
  std::vector<at::ScalarType> types;
  const auto product = [&](const std::vector<at::Tensor>& in) {
    const at::Tensor y = torch::mm(in[0], w);
    types.push_back(y.scalar_type());
    return std::vector{y};
  };
  const auto run = [&](bool recomputes) {
    w.mutable_grad().reset();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const at::Tensor first = recomputes ? recomputed({x}, {w}, product)[0] : product({x})[0];
    const at::Tensor second = torch::mm(first, w);  // recorded: must not meet a cast made without a graph
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    second.sum().backward();
    return w.grad().clone();
  };
  const at::Tensor expected = run(false);
  EXPECT_TRUE(torch::allclose(run(true), expected, 1e-2,
                              1e-2));  // the cast's two gradients are added in fp32, not bf16
  EXPECT_EQ(types, std::vector<at::ScalarType>(3, at::kBFloat16));
}

TEST(Recompute, RefusesWhatItCannotDo) {
  const at::Tensor x = torch::ones({3}).set_requires_grad(true);
  const auto square = [](const auto& in) { return std::vector{in[0] * in[0]}; };
  EXPECT_THROW(torch::autograd::grad({recomputed({x}, {}, square)[0].sum()}, {x}), InputError);
  EXPECT_THROW(recomputed({x}, {}, square)[0].sum().backward({}, true, /*create_graph=*/true), InputError);
  EXPECT_THROW(recomputed({x, {}}, {}, square), InputError);
  EXPECT_THROW(recomputed({x}, {}, [](const auto&) { return std::vector<at::Tensor>(1); }), InputError);
  int calls = 0;
  const auto fickle = [&calls](const auto& in) {
    return ++calls == 1 ? std::vector{in[0] * 2} : std::vector{in[0] * 2, in[0] * 3};
  };
  EXPECT_THROW(recomputed({x}, {}, fickle)[0].sum().backward(), InputError);
  EXPECT_THROW(parse_recompute("some"), InputError);
  Model model = chain(2);
  LossSink sink;
  EXPECT_THROW(forward_recomputed(model, Recompute::selective, {}, plain_batch(), {}, sink), InputError);
}

TEST(Recompute, CutsAChainIntoGroupsOfAboutTheSquareRoot) {
  using Groups = std::vector<size_t>;
  EXPECT_EQ(recompute_groups(4, Recompute::full), (Groups{0, 1, 2, 3}));
  EXPECT_EQ(recompute_groups(14, Recompute::sqrt), (Groups{0, 4, 7, 11}));
  EXPECT_EQ(recompute_groups(2, Recompute::sqrt), (Groups{0}));
  EXPECT_EQ(recompute_groups(100, Recompute::sqrt).size(), 10u);
  for (const auto* name : {"none", "full", "selective", "sqrt"})
    EXPECT_EQ(recompute_name(parse_recompute(name)), name);
}

}  // namespace
}  // namespace funicular
