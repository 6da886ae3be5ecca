// Claims about encoders whose weights are cut into slices: on real processes, against one process.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../comm/ranks.h"
#include "funicular/base/error.h"
#include "funicular/comm/mesh.h"
#include "funicular/core/region.h"
#include "funicular/core/slicing.h"
#include "funicular/model/encoder.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/slice_group.h"
#include "funicular/parallel/strategy.h"
#include "sliced_bert.h"

namespace funicular::parallel::tensor_tests {
namespace {

using comm::test::Endings;
using comm::test::finish_rank;
using comm::test::is_rank;
using comm::test::Ranks;
using comm::test::with_ranks;
using test::batch_of;
using test::expect_follows_one_process;
using test::make_model;
using test::options_of;
using test::own_part;
using test::Rig;

TEST(TensorSlices, WithEveryOptimizerHeadAndFrozenWeightsTrainAsOneProcess) {
  for (const int ranks : {2, 3}) {
    with_ranks(ranks, [] {
      const auto group = comm::Group::from_environment();
      for (const bool sequence : {false, true}) {
        for (const optim::OptimizerSpec& optimizer :
             {optim::OptimizerSpec(optim::Lamb{}), optim::OptimizerSpec(optim::Lars{})})
          expect_follows_one_process(group, {.layout = {.strategy = "tensor", .sequence_parallel = sequence},
                                             .optimizer = optimizer});
        expect_follows_one_process(group, {.layout = {.strategy = "tensor", .sequence_parallel = sequence},
                                           .head = model::Head::classification});
        expect_follows_one_process(
            group, {.layout = {.strategy = "tensor", .sequence_parallel = sequence},
                    .frozen = {"bert.embeddings.word_embeddings.weight", "bert.embeddings.LayerNorm.weight",
                               "bert.encoder.layer.0.attention.self.query_key_value.weight",
                               "bert.encoder.layer.0.output.LayerNorm.bias",
                               "bert.encoder.layer.1.output.dense.weight"}});
      }
      finish_rank();
    });
    if (is_rank()) return;
  }
}

TEST(TensorSlices, BesideEachOtherShareTheBatch) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* strategy : {"tensor", "ddp", "zero1", "zero2", "zero3"})
      expect_follows_one_process(
          group, {.layout = {.strategy = strategy, .tensor_parallel = 2}, .optimizer = optim::Lamb{}});
    expect_follows_one_process(
        group, {.layout = {.strategy = "zero3", .tensor_parallel = 2, .sequence_parallel = true},
                .optimizer = optim::Lamb{},
                .recompute = Recompute::full});
    finish_rank();
  });
}

/// What a rank holds of each kind, and what it owns.
struct Held final : StateVisitor {
  void visit(const StateSlice& slice) override {
    whole[slice.label()] += elements_of({}, slice.shape);
    here[slice.label()] += slice.local.numel();
    if (slice.owned) owned[slice.label()] += slice.local.numel();
    EXPECT_LE(slice.begin + slice.local.numel(), elements_of(slice.region, slice.shape)) << slice.name;
  }
  std::map<std::string, int64_t> whole, here, owned;
};

TEST(TensorSlices, TogetherOwnEachElementOnceAndHoldTheirPartOnly) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    for (const char* strategy : {"tensor", "zero1"}) {
      Rig rig(make_model({}, 1),
              make_strategy(LayoutOptions{.strategy = strategy, .tensor_parallel = 2}.layout(), group),
              optim::AdamW{});
      rig.step(own_part({batch_of(1, 0), batch_of(1, 1)}, rig.strategy->data_share()), 1);
      Held held;
      rig.strategy->visit_state(held);
      const Model whole = make_model({}, 1);
      for (const char* kind : {"model", "optimizer.exp_avg", "optimizer.exp_avg_sq"}) {
        EXPECT_EQ(held.whole[kind], whole.parameter_count()) << kind;
        const at::Tensor owned = at::tensor({held.owned[kind]}, at::kLong);
        group.all_reduce(owned);
        EXPECT_EQ(owned.item<int64_t>(), whole.parameter_count()) << strategy << " " << kind;
      }
      // Of 91 words 46 and 45, of 3 heads of 8 channels 2 and 1, of 5 times 8 channels 3 and 2.
      const bool first = rig.strategy->data_share().counted;
      const int64_t words = group.rank() % 2 == 0 ? 46 : 45, heads = group.rank() % 2 == 0 ? 16 : 8,
                    channels = group.rank() % 2 == 0 ? 24 : 16;
      EXPECT_EQ(first, group.rank() % 2 == 0);
      EXPECT_EQ(rig.model.find("bert.embeddings.word_embeddings.weight")->compute.sizes(),
                (at::IntArrayRef{words, 24}));
      const auto* const qkv = rig.model.find("bert.encoder.layer.1.attention.self.query_key_value.weight");
      EXPECT_EQ(qkv->compute.sizes(), (at::IntArrayRef{3 * heads, 24}));
      EXPECT_EQ(rig.model.find("bert.encoder.layer.0.output.dense.weight")->compute.sizes(),
                (at::IntArrayRef{24, channels}));
    }
    finish_rank();
  });
}

/// What a step of one micro-batch exchanges within a tensor group, counted anew.
SliceTraffic traffic_of(const comm::Group& group, bool sequence, const MicroBatch& batch) {
  Rig rig(make_model({}, 1),
          make_strategy(LayoutOptions{.strategy = "tensor", .sequence_parallel = sequence}.layout(), group),
          optim::AdamW{});
  SliceTraffic traffic;
  Slicing::of(rig.model).front()->activate(make_slice_group(group, traffic), sequence);
  rig.step({batch}, 1);
  return traffic;
}

TEST(TensorSlices, ExchangeExactlyWhatTheFormulasSay) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    const MicroBatch batch = batch_of(1, 0);
    const int64_t tokens = batch.packing.tokens(), masked = batch["mlm_rows"].numel();
    constexpr int64_t kHidden = 24, kDouble = 8;
    // A layer: two sums forwards, two backwards. The last computes the masked rows only, but for its attention.
    const int64_t forward = 2 * tokens + 2 * masked, backward = 2 * tokens + tokens + masked;
    const int64_t losses = 2 * 2 * masked * kDouble, embeddings = tokens, head = masked;
    const SliceTraffic plain = traffic_of(group, false, batch);
    EXPECT_EQ(plain.added, (embeddings + forward + backward + head) * kHidden * kDouble);
    EXPECT_EQ(plain.gathered, losses);
    EXPECT_EQ(plain.scattered, 0);
    const SliceTraffic divided = traffic_of(group, true, batch);
    EXPECT_EQ(divided.added, (embeddings + head) * kHidden * kDouble);
    // Every sum is now a scattered and a gathered half: forwards scattered behind a product, gathered before it, backwards
    // the other way round. Besides, the last layer's result is gathered, and the embeddings' gradient.
    EXPECT_EQ(divided.scattered, (forward + backward) * kHidden * kDouble);
    EXPECT_EQ(divided.gathered, (forward + backward + tokens + masked) * kHidden * kDouble + losses);
    finish_rank();
  });
}

TEST(TensorSlices, AnOverflowInOneSliceIsSeenByAll) {
  with_ranks(2, [] {
    const auto group = comm::Group::from_environment();
    model::ModelOptions options = options_of(model::Head::masked_lm, 1);
    options.dtype = at::kFloat;
    Rig rig(model::build_model(options), make_strategy("tensor", group, {}), optim::AdamW{},
            {.compute = at::kHalf});
    rig.settings.loss_scale = 1024;
    EXPECT_TRUE(rig.step({batch_of(1, 0)}, 1).finite);
    const at::Tensor before = rig.model.find("bert.embeddings.LayerNorm.weight")->master.detach().clone();
    Parameter& up = *rig.model.find("bert.encoder.layer.1.intermediate.dense.bias");
    const float kept = up.master.detach()[0].item<float>();
    // A bias of one rank's slice alone.
    if (group.rank() == 1) up.master.detach()[0] = INFINITY;
    const StepResult result = rig.step({batch_of(2, 0)}, 2);
    EXPECT_FALSE(result.finite);
    EXPECT_TRUE(before.equal(rig.model.find("bert.embeddings.LayerNorm.weight")->master))
        << "nothing is updated";
    const auto names = group.gather_texts(result.non_finite_gradient);
    EXPECT_EQ(names[0], names[1]);
    EXPECT_FALSE(names[0].empty());
    if (group.rank() == 1) up.master.detach()[0] = kept;
    EXPECT_TRUE(rig.step({batch_of(3, 0)}, 2).finite);
    finish_rank();
  });
}

TEST(TensorSlices, RefuseWhatTheyCannotDo) {
  const auto refuses = [](Model model, const LayoutOptions& layout, const StrategyOptions& options,
                          const char* part) {
    try {
      Rig rig(std::move(model), make_strategy(layout.layout(), {}, options), optim::AdamW{});
      ADD_FAILURE() << "nothing is refused: " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refuses(make_model({}, 1), {.strategy = "tensor", .tensor_parallel = 2}, {}, "1 ranks cannot be divided");
  refuses(make_model({}, 1), {.strategy = "ps-sync", .tensor_parallel = 2}, {},
          "\"ps-sync\" cannot train a model that is cut");
  refuses(make_model({}, 1), {.strategy = "single", .sequence_parallel = true}, {},
          "expected --tensor-parallel of at least 2");
  refuses(make_model({}, 1), {.strategy = "tensor", .sequence_parallel = true}, {.deterministic = true},
          "--deterministic");
  Model plain;
  plain.add_parameter("weight", at::zeros({2, 2}), ParameterKind::matrix);
  refuses(std::move(plain), {.strategy = "tensor"}, {}, "declares no weights that may be cut");
  const std::string words = "bert.embeddings.word_embeddings.weight";
  Model shares = make_model({}, 1);
  shares.append(make_model({}, 2), {.prefix = "second.", .shared_weights = {{words, words}}, .frozen = true});
  refuses(std::move(shares), {.strategy = "tensor"}, {}, "a frozen model shares weights");
  Model two = make_model({}, 1);
  two.append(make_model({}, 2), {.prefix = "second.", .shared_weights = {{words, words}}});
  Slicing::of(two).back()->cut(two.aliases.front().alias.get(), {.dimension = 1, .unit = 1});
  refuses(std::move(two), {.strategy = "tensor"}, {},
          ("two encoders share " + words + ", and do not declare the same cut").c_str());
}

TEST(TensorSlices, OfMoreRanksThanHeadsAreRefused) {
  with_ranks(4, [] {
    const auto group = comm::Group::from_environment();
    try {
      Rig rig(make_model({}, 1), make_strategy("tensor", group), optim::AdamW{});
      ADD_FAILURE();
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("query.weight cannot be cut for 4 ranks"), std::string::npos)
          << error.what();
    }
    group.barrier();
    finish_rank();
  });
}

TEST(TensorSlices, ARankThatIsKilledInAStepIsNamedByTheOthers) {
  if (!is_rank()) {
    EXPECT_EQ(Ranks(3).end({0, 2}), (Endings{0, -SIGKILL, 0}));
    return;
  }
  const auto group = comm::Group::from_environment({.timeout = std::chrono::seconds(60),
                                                    .silence = std::chrono::seconds(2),
                                                    .patience = std::chrono::seconds(60)});
  Rig rig(make_model({}, 1), make_strategy("tensor", group), optim::AdamW{});
  const auto forward = rig.model.segments[1].forward;
  int passes = 0;
  rig.model.segments[1].forward = [&](Activations in, const Pass& pass) {
    if (group.rank() == 1 && ++passes == 2) ::raise(SIGKILL);
    return forward(std::move(in), pass);
  };
  std::string message;
  try {
    for (int64_t step = 1; step <= 3; ++step) rig.step({batch_of(step, 0)}, step);
  } catch (const RunError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("rank 1 (process"), std::string::npos) << message;
  EXPECT_NE(message.find("has ended"), std::string::npos) << message;
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

}  // namespace
}  // namespace funicular::parallel::tensor_tests
