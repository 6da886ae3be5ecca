// Claims about the memory of a step: what is predicted is what is measured.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "funicular/bench/memory_table.h"
#include "funicular/model/encoder.h"
#include "funicular/nn/matmul.h"
#include "funicular/objective/next_sentence.h"
#include "funicular/runtime/allocator.h"

namespace funicular::bench {

namespace {

format::ModelConfig config_of(int64_t layers, int64_t hidden, int64_t heads, int64_t inner,
                              int64_t vocabulary) {
  format::ModelConfig config;
  config.encoder.layers = layers;
  config.encoder.width = hidden;
  config.encoder.heads = heads;
  config.encoder.feed_forward.width = inner;
  config.encoder.vocabulary = vocabulary;
  return config;
}

MemoryRow measure(const format::ModelConfig& config, const MemoryCase& settings, bool ragged = false) {
  const Rows rows = make_rows({.ragged = ragged,
                               .longest = settings.max_length,
                               .batch_size = settings.batch_size,
                               .vocabulary = config.encoder.vocabulary},
                              0);
  const auto make_model = [&] {
    return model::build_model({config, model::Head::masked_lm, master_type(settings.precision)});
  };
  return measure_case(make_model, settings, rows, 1);
}

std::string name_of(const MemoryCase& settings) {
  return precision_name(settings.precision) + ", recompute " + recompute_name(settings.recompute) + ", " +
         std::to_string(settings.batch_size) + " rows of " + std::to_string(settings.max_length) + " in " +
         std::to_string(settings.accumulation);
}

/// Weights, gradients, moments and activations to the byte. The peak to 1 % where products are our own;
/// LibTorch's take buffers that are not known, and float16 is widened for ours: to 6 %.
void expect_predicted(const MemoryRow& row) {
  const auto& [settings, tokens, measured, told] = row;
  const std::string name = name_of(settings);
  const StepMemory predicted = told.value();
  EXPECT_EQ(predicted.weights, measured.weights) << name;
  EXPECT_EQ(predicted.gradients, measured.gradients) << name;
  EXPECT_EQ(predicted.optimizer, measured.optimizer) << name;
  EXPECT_EQ(predicted.activations, measured.activations) << name;
  const at::ScalarType type = compute_type(settings.precision).value_or(master_type(settings.precision));
  const auto moving = static_cast<double>(measured.activations + measured.workspace);
  EXPECT_NEAR(static_cast<double>(predicted.activations + predicted.workspace), moving,
              (nn::has_own_products(type) ? 0.01 : 0.06) * moving)
      << name << ": activations " << measured.activations << ", workspace " << measured.workspace
      << ", predicted " << predicted.workspace;
}

class MemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!use_caching_allocator()) GTEST_SKIP() << "tensors are not counted here";
    at::set_num_threads(1);
  }
};

TEST_F(MemoryTest, IsAsPredictedForEachPrecisionAndRecomputation) {
  const format::ModelConfig config = config_of(4, 128, 2, 512, 3000);
  for (const auto precision : {Precision::fp32, Precision::bf16})
    for (const auto recompute : {Recompute::none, Recompute::selective, Recompute::sqrt, Recompute::full})
      for (const int64_t accumulation : {1, 2})
        expect_predicted(measure(config, {16, 128, accumulation, precision, recompute}));
  expect_predicted(measure(config, {8, 128, 1, Precision::fp64, Recompute::none}));
  expect_predicted(measure(config, {8, 128, 1, Precision::fp16, Recompute::none}));
  at::set_num_threads(2);  // each has buffers of its own
  expect_predicted(measure(config_of(2, 256, 4, 512, 3000), {8, 256, 1, Precision::fp32}));
}

TEST_F(MemoryTest, IsAsPredictedForOtherModelsAndBatches) {
  // More masked tokens than a tile of logits has rows; a wide feed-forward; without dropout; ragged rows.
  expect_predicted(measure(config_of(2, 128, 2, 512, 3000), {48, 128, 1, Precision::fp32}));
  expect_predicted(measure(config_of(2, 128, 2, 512, 3000), {48, 128, 1, Precision::bf16}));
  expect_predicted(measure(config_of(2, 128, 2, 512, 3000), {48, 128, 1, Precision::fp16}));
  expect_predicted(measure(config_of(3, 128, 4, 1024, 2000), {8, 384, 1, Precision::fp32}));
  format::ModelConfig plain = config_of(3, 256, 4, 512, 2000);
  plain.encoder.dropouts.hidden = plain.encoder.dropouts.attention = 0;
  expect_predicted(measure(plain, {16, 128, 1, Precision::fp32, Recompute::full}));
  expect_predicted(measure(plain, {16, 128, 1, Precision::bf16, Recompute::none}));
  expect_predicted(measure(config_of(3, 256, 4, 1024, 4000), {24, 128, 2, Precision::fp32}, /*ragged=*/true));
}

TEST_F(MemoryTest, IsAsPredictedForOtherFamilies) {
  format::ModelConfig electra = config_of(3, 128, 2, 512, 3000);
  electra.model_type = "electra";
  electra.encoder.embedding_size = 64;
  for (const auto precision : {Precision::fp32, Precision::bf16})
    for (const auto recompute : {Recompute::none, Recompute::full})
      for (const int64_t accumulation : {1, 2})
        expect_predicted(measure(electra, {16, 128, accumulation, precision, recompute}));
  expect_predicted(measure(electra, {48, 128, 1, Precision::fp32}));
  format::ModelConfig roberta = config_of(3, 128, 2, 512, 3000);
  roberta.model_type = "roberta";
  roberta.encoder.padding_id = 1;
  roberta.encoder.positions.after_padding = true;
  expect_predicted(measure(roberta, {16, 128, 1, Precision::fp32}));
  expect_predicted(measure(roberta, {16, 128, 1, Precision::bf16}));
}

/// The batch has labels for each head.
void expect_predicted(const model::Head& head, Precision precision, Recompute recompute,
                      int64_t accumulation) {
  format::ModelConfig config = config_of(3, 128, 2, 512, 3000);
  config.id2label = {"a", "b", "c"};
  config.num_labels = 3;
  const StepOptions options{precision, recompute, accumulation > 1};
  train::GlobalBatch batch =
      make_batch(make_rows({.ragged = true, .longest = 128, .batch_size = 16, .vocabulary = 3000}, 0), 0,
                 16 / accumulation, 1);
  batch.counts.clear();
  for (MicroBatch& part : batch.micro_batches) {
    const int64_t rows = part.packing.sequences();
    part.tensors["labels"] = at::zeros({rows}, at::kLong);
    part.tensors["next_sentence_labels"] = at::zeros({rows}, at::kLong);
    for (const char* term : {"classification", "next_sentence"})
      part.counts[term] = static_cast<double>(rows);
    add_counts(batch.counts, part.counts);
  }
  const auto make_model = [&] { return model::build_model({config, head, master_type(precision)}); };
  const StepMemory predicted = predict_memory(make_model, options, batch);
  TrainingStep step(make_model(), options);
  step.run(batch);
  expect_predicted(
      {{16, 128, accumulation, precision, recompute}, batch.tokens, measure_memory(step, batch), predicted});
}

TEST_F(MemoryTest, IsAsPredictedForOtherHeads) {
  for (const auto& head : {model::Head::classification, objective::NextSentence::head_of_both()})
    for (const auto precision : {Precision::fp32, Precision::bf16})
      for (const auto recompute : {Recompute::none, Recompute::full})
        for (const int64_t accumulation : {1, 2}) expect_predicted(head, precision, recompute, accumulation);
}

TEST_F(MemoryTest, OfAModelThatFitsInNoMachineIsPredictedAtOnce) {
  const format::ModelConfig config = config_of(64, 8192, 64, 32768, 30000);  // 52 thousand million weights
  const train::GlobalBatch batch = make_batch(
      make_rows({.ragged = false, .longest = 128, .batch_size = 4, .vocabulary = config.encoder.vocabulary},
                0),
      0, 0, 1);
  const StepMemory predicted =
      predict_memory([&] { return model::build_model({config}); }, {.precision = Precision::bf16}, batch);
  EXPECT_GT(predicted.peak(), int64_t{500} << 30);
}

TEST_F(MemoryTest, OfFullRecomputationGrowsByOneInputALayer) {
  const auto activations = [](int64_t layers) {
    return measure(config_of(layers, 128, 2, 512, 2000), {16, 128, 1, Precision::fp32, Recompute::full})
        .measured.activations;
  };
  EXPECT_EQ(activations(5) - activations(3), 2 * 16 * 128 * 128 * 4);
}

TEST_F(MemoryTest, IsTheSameForAnyNumberOfMicroBatches) {
  const format::ModelConfig config = config_of(2, 128, 2, 512, 2000);
  const MemoryRow few = measure(config, {16, 128, 2, Precision::fp32});
  const MemoryRow many = measure(config, {64, 128, 8, Precision::fp32});
  EXPECT_EQ(few.measured.peak(), many.measured.peak());
}

TEST_F(MemoryTest, IsToldByKindInTextAndJson) {
  const MemoryRow row{
      {8, 64, 2, Precision::bf16, Recompute::sqrt}, 512, {1000000, 2, 3, 4, 5}, StepMemory{6, 7, 8, 9, 10}};
  const OrderedJson json = to_json(std::vector{row});
  EXPECT_EQ(json[0]["micro_batch_size"], 4);
  EXPECT_EQ(json[0]["measured"]["peak"], 1000014);
  EXPECT_EQ(json[0]["predicted"]["workspace"], 10);
  const std::string text = to_text({row});
  EXPECT_NE(text.find("bf16, 8 rows of 64 in parts of 4, sqrt"), std::string::npos) << text;
  EXPECT_NE(text.find("measured            1.0"), std::string::npos) << text;
}

TEST_F(MemoryTest, OfLayoutsWithLongNamesStaysInItsColumns) {
  const StepMemory memory{1000000, 2000000, 3, 4, 5};
  for (const std::string name :
       {"ddp", "pipeline --pipeline-parallel 2 --tensor-parallel 2 --zero 1 --schedule zb-h1"}) {
    const std::string text = to_text(std::vector{RankMemoryRow{{}, name, {memory, memory}}});
    const size_t heading = text.find("weights"), line = text.find("rank 1");
    ASSERT_NE(line, std::string::npos) << text;
    for (const char* const rank : {"rank 0", "rank 1"}) {
      const size_t place = text.find(rank), begin = text.rfind('\n', place) + 1;
      EXPECT_EQ(text.find("1.0", place) + 3 - begin, heading + 7) << "right below the heading\n" << text;
    }
  }
}

}  // namespace
}  // namespace funicular::bench
