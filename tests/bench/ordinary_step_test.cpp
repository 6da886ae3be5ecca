// Claims about the ordinary step that techniques are compared with: it does the same work.
#include "funicular/bench/ordinary_step.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "funicular/bench/training_step.h"
#include "funicular/model/encoder.h"

namespace funicular::bench {
namespace {

format::ModelConfig small_config() {
  format::ModelConfig config;
  config.encoder.layers = 2;
  config.encoder.width = 32;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 64;
  config.encoder.vocabulary = 1200;
  return config;
}

Model build(at::ScalarType type = at::kFloat, const model::Head& head = model::Head::masked_lm) {
  return model::build_model({small_config(), head, type, 3});
}

train::GlobalBatch batch(int64_t number = 0) {
  return make_batch(
      make_rows({.longest = 48, .batch_size = 4, .vocabulary = 1200}, static_cast<uint64_t>(number)), number,
      0, 1);
}

TEST(OrdinaryRows, AreThoseOfThePackedBatchBetweenPadding) {
  const Rows rows{{{1, 3, 2}, {1}, {8}}, {{1, 7, 3, 2}, {2}, {9}}};  // the first one is not the longest
  const MicroBatch packed = pack_rows(rows, 5, {.seed = 1, .training = true});
  const MicroBatch padded = pad_rows(packed, 0);
  EXPECT_TRUE(torch::equal(padded["token_ids"], torch::tensor({1, 3, 2, 0, 1, 7, 3, 2}, torch::kLong)));
  EXPECT_TRUE(torch::equal(padded["mlm_rows"], torch::tensor({1, 6}, torch::kLong)));
  EXPECT_TRUE(torch::equal(padded["mlm_labels"], packed["mlm_labels"]));
  EXPECT_EQ(padded["token_type_ids"].numel(), 8);
  EXPECT_EQ(padded.packing.host_offsets, (std::vector<int32_t>{0, 4, 8}));
  EXPECT_TRUE(torch::equal(padded.packing.draw_ids, packed.packing.draw_ids));
  EXPECT_EQ(padded.counts, packed.counts);
}

TEST(OrdinaryHead, GivesTheLossAndTheGradientsOfTheHeadOnMaskedTokens) {
  const train::GlobalBatch all = batch();
  Model ours = build(at::kDouble), ordinary = build(at::kDouble, ordinary_masked_lm());
  std::vector<double> losses;
  for (Model* const model : {&ours, &ordinary}) {
    LossSink sink;
    model->forward({}, all.micro_batches[0], {}, sink);
    const at::Tensor total = sink.total(all.counts);
    total.backward();
    losses.push_back(total.item<double>());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-10);
  for (size_t i = 0; i < ours.parameters.size(); ++i)
    EXPECT_TRUE(torch::allclose(ours.parameters[i]->compute.grad(), ordinary.parameters[i]->compute.grad(),
                                1e-8, 1e-11))
        << ours.parameters[i]->name;
}

TEST(OrdinaryHead, FollowsTheActivationOfTheModel) {
  for (const char* name : {"gelu", "gelu_new", "relu", "silu", "tanh"}) {
    format::ModelConfig config = small_config();
    config.encoder.activation = name;
    const train::GlobalBatch all = batch();
    Model ours = model::build_model({config, model::Head::masked_lm, at::kDouble, 3});
    Model ordinary = model::build_model({config, ordinary_masked_lm(), at::kDouble, 3});
    LossSink a, b;
    ours.forward({}, all.micro_batches[0], {}, a);
    ordinary.forward({}, all.micro_batches[0], {}, b);
    EXPECT_NEAR(a.total(all.counts).item<double>(), b.total(all.counts).item<double>(), 1e-9) << name;
  }
}

TEST(OrdinaryAdamW, TakesTheStepsOfTheFusedOne) {
  for (const auto precision : {Precision::fp32, Precision::bf16})
    for (const bool accumulates : {false, true}) {
      TrainingStep fused(build(), {.precision = precision, .accumulates = accumulates});
      TrainingStep ordinary(build(), {.precision = precision, .accumulates = accumulates},
                            make_ordinary_adamw({.learning_rate = 1e-4, .weight_decay = 0.01}));
      for (int64_t i = 0; i < 5; ++i) {
        const train::GlobalBatch next = batch(i);
        const double a = fused.run(next).loss, b = ordinary.run(next).loss;
        EXPECT_NEAR(a, b, 1e-3) << i;
      }
      for (size_t i = 0; i < fused.model().parameters.size(); ++i) {
        const Parameter &a = *fused.model().parameters[i], &b = *ordinary.model().parameters[i];
        EXPECT_TRUE(torch::allclose(a.master, b.master, 1e-4, 5e-5)) << a.name;
        EXPECT_TRUE(torch::equal(b.compute, b.master.to(b.compute.scalar_type()))) << a.name;
      }
    }
}

}  // namespace
}  // namespace funicular::bench
