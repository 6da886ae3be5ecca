// How often a training step makes the host wait for a GPU, counted on a stand-in of a card.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "funicular/bench/timed_rows.h"
#include "funicular/bench/training_step.h"
#include "funicular/core/device_copy.h"
#include "funicular/format/model_config.h"
#include "funicular/model/encoder.h"
#include "funicular/nn/device/attention_choice.h"
#include "funicular/nn/functional.h"
#include "funicular/objective/class_loss.h"
#include "funicular/objective/next_sentence.h"
#include "funicular/objective/soft_labels.h"
#include "funicular/optim/optimizer.h"
#include "stand_in.h"

namespace funicular::card {
namespace {

constexpr int64_t kWords = 40;

struct Step {
  std::string name;
  model::Head head = model::Head::masked_lm;
  optim::OptimizerSpec optimizer = optim::AdamW{};
  Recompute recompute = Recompute::none;
  const char* family = "bert";
  bool flash = false;  ///< bfloat16 and FlashAttention
};

bench::TrainingStep make_step(const Step& step, at::Device place) {
  model::ModelOptions options;
  options.config = format::default_config(step.family);
  options.config.encoder.vocabulary = kWords;
  options.config.encoder.padding_id = 0;
  options.config.encoder.width = 16;
  options.config.encoder.layers = 2;
  if (!options.config.encoder.attention.empty()) options.config.encoder.attention.resize(2);
  options.config.encoder.heads = 2;
  options.config.encoder.feed_forward.width = 24;
  options.config.encoder.positions.rows = 40;
  options.head = step.head;
  options.device = place;
  return {model::build_model(options),
          {step.flash ? Precision::bf16 : Precision::fp32, step.recompute, true},
          optim::make_optimizer(step.optimizer)};
}

/// `parts` micro-batches of two rows, with what any of the heads reads.
train::GlobalBatch make_batch(int64_t number, int64_t parts) {
  const bench::Rows rows = bench::make_rows({.longest = 34, .batch_size = 2 * parts, .vocabulary = kWords},
                                            static_cast<uint64_t>(number));
  train::GlobalBatch batch = bench::make_batch(rows, number, 2, 5);
  for (MicroBatch& one : batch.micro_batches)
    for (const char* const labels : {"labels", "next_sentence_labels"})
      one.tensors[labels] = at::ones({2}, at::kLong);
  return batch;
}

std::string text_of(const std::vector<std::string>& found) {
  std::string text;
  for (const std::string& one : found) text += "\n  " + one;
  return text;
}

/// Two losses with class weights: the sum over rows, and the losses of rows.
model::Head weighted_classes() {
  const auto add = [loss = objective::ClassLoss{.weights = {1, 3}}](const at::Tensor& logits,
                                                                    const Pass& pass) {
    const bool training = pass.batch.packing.random.training;
    EXPECT_TRUE(training);
    pass.loss.add("sum", loss.sum(logits, pass.batch["labels"], training));
    pass.loss.add("rows", objective::class_losses(logits, pass.batch, loss, {}).sum());
  };
  return model::with_classes(model::classifier(add), 2);
}

std::vector<Step> steps() {
  return {{.name = "masked words"},
          {.name = "recomputed", .recompute = Recompute::full},
          {.name = "next sentences", .head = objective::pretraining_head("next_sentence")},
          {.name = "classes",
           .head = model::with_classes(model::Head::classification, 2),
           .optimizer = optim::Lion{}},
          {.name = "class weights", .head = weighted_classes()},
          {.name = "no token types", .family = "distilbert"},
          {.name = "positions by padding", .family = "roberta"},
          {.name = "rotary positions, gates", .family = "modernbert"},
          {.name = "FlashAttention", .flash = true},
          {.name = "FlashAttention, recomputed", .recompute = Recompute::selective, .flash = true},
          {.name = "momentum", .optimizer = optim::Sgd{.momentum = 0.9}}};
}

/// The host waits once, for the loss and the norm, when the update is queued; however many micro-batches there are.
TEST(CardWaits, AStepWaitsOnceAndCopiesNothingPageable) {
  const Card card;
  for (const Step& kind : steps()) {
    std::optional<nn::device::PreferAttention> prefer;
    if (kind.flash) prefer.emplace(nn::device::AttentionKernels::flash);
    bench::TrainingStep step = make_step(kind, at::kCUDA);
    for (const int64_t parts : {1, 2}) {
      SCOPED_TRACE(testing::Message() << kind.name << ", micro-batches " << parts);
      const train::GlobalBatch batch = make_batch(parts, parts);
      reset_counts();
      EXPECT_TRUE(step.run(batch).finite);
      const Counts found = counts();
      EXPECT_EQ(found.waits.size(), 1U) << text_of(found.waits);
      EXPECT_EQ(found.pageable.size(), 0U) << text_of(found.pageable);
      EXPECT_EQ(found.downloads, 1);
      EXPECT_GE(found.uploads, parts);
    }
  }
}

TEST(CardWaits, ABatchIsOneCopy) {
  const Card card;
  const train::GlobalBatch batch = make_batch(0, 1);
  reset_counts();
  const MicroBatch moved = batch.micro_batches[0].to(at::kCUDA);
  EXPECT_EQ(counts().recorded, 1);
  EXPECT_EQ(counts().uploads, 1);
  EXPECT_TRUE(counts().pageable.empty()) << text_of(counts().pageable);
  for (const auto& [name, tensor] : batch.micro_batches[0].tensors) {
    EXPECT_TRUE(moved[name].is_cuda()) << name;
    EXPECT_TRUE(at::equal(moved[name].cpu(), tensor)) << name;
  }
  EXPECT_TRUE(at::equal(moved.packing.offsets.cpu(), batch.micro_batches[0].packing.offsets));
  EXPECT_TRUE(at::equal(moved.packing.token_draws.cpu(), batch.micro_batches[0].packing.token_draws));
}

/// The gradient of the weight of a vocabulary loss, times a quarter.
at::Tensor vocabulary_gradient(int64_t rows, at::Device place) {
  constexpr int64_t kWidth = 8, kClasses = 10;
  const auto leaf = [&](at::IntArrayRef sizes, double step) {
    const at::Tensor values = at::ones(sizes, at::kDouble).flatten().cumsum(0).mul(step).sin();
    return values.view(sizes).to(place).set_requires_grad(true);
  };
  const at::Tensor hidden = leaf({rows, kWidth}, 0.7), weight = leaf({kClasses, kWidth}, 1.3),
                   bias = leaf({kClasses}, 0.3);
  const at::Tensor labels = at::arange(rows, at::kLong).remainder(kClasses).to(place);
  reset_counts();
  (nn::vocabulary_cross_entropy(hidden, weight, bias, labels) * 0.25).backward();
  EXPECT_TRUE(counts().waits.empty()) << text_of(counts().waits);
  return weight.grad().cpu();
}

/// More rows than one tile of logits: the sum of the first tile waits for the factor of the loss, which is on the card.
TEST(CardWaits, TheVocabularyLossOfSeveralTilesDoesNotWait) {
  const Card card;
  const int64_t rows = nn::kLogitRowsOnGpu + 4;
  EXPECT_TRUE(
      at::allclose(vocabulary_gradient(rows, at::kCUDA), vocabulary_gradient(rows, at::kCPU), 1e-5, 1e-5));
}

/// The stand-in computes what the processor does by the same kernels.
TEST(CardWaits, TheCardTrainsAsTheProcessor) {
  const Card card;
  const Step kind = steps()[2];
  bench::TrainingStep there = make_step(kind, at::kCUDA), here = make_step(kind, at::kCPU);
  for (int64_t i = 0; i < 3; ++i) {
    const parallel::StepResult a = there.run(make_batch(i, 2)), b = here.run(make_batch(i, 2));
    EXPECT_NEAR(a.loss / b.loss, 1, 1e-5);
    EXPECT_NEAR(a.gradient_norm / b.gradient_norm, 1, 1e-4);
  }
}

/// Checks that the stand-in counts each kind of wait.
TEST(CardWaits, TheStandInSeesWhatWaits) {
  const Card card;
  const at::Tensor there = at::ones({4}, at::kCUDA), mask = there.gt(0);
  const auto waits = [](const auto& call) {
    reset_counts();
    call();
    return counts().waits.size();
  };
  EXPECT_EQ(waits([&] { there.sum().item<double>(); }), 1U);
  EXPECT_EQ(waits([&] { there.cpu(); }), 1U);
  EXPECT_EQ(waits([&] { there.nonzero(); }), 1U);
  EXPECT_EQ(waits([&] { there.masked_select(mask); }), 1U);
  EXPECT_GE(waits([&] { there.index({mask}); }), 1U);
  EXPECT_EQ(waits([&] { Arriving(there).wait(); }), 1U);
  EXPECT_EQ(waits([&] { (void)(there + 1); }), 0U);
  EXPECT_EQ(waits([&] { at::ones({4}).to(at::kCUDA); }), 0U);
  EXPECT_EQ(counts().pageable.size(), 1U);
  EXPECT_ANY_THROW((void)(there + at::ones({4})));
}

}  // namespace
}  // namespace funicular::card
