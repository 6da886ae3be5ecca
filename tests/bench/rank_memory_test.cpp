// Claims about what each of several ranks needs: it is predicted by one process that imagines the others.
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "funicular/bench/measured_memory.h"
#include "funicular/bench/rank_use.h"
#include "funicular/model/encoder.h"
#include "funicular/objective/next_sentence.h"
#include "funicular/parallel/layout.h"
#include "funicular/parallel/stages.h"
#include "funicular/runtime/allocator.h"
#include "funicular/train/memory_advice.h"
#include "tests/comm/ranks.h"

namespace funicular::bench::rank_memory {
namespace {

constexpr int64_t kRows = 8, kLongest = 64, kVocabulary = 2000;

format::ModelConfig small_config() {
  format::ModelConfig config;
  config.encoder.layers = 3;
  config.encoder.width = 128;
  config.encoder.heads = 2;
  config.encoder.feed_forward.width = 512;
  config.encoder.vocabulary = kVocabulary;
  config.id2label = {"a", "b", "c"};
  config.num_labels = 3;
  return config;
}

struct RankCase {
  std::string strategy;
  model::Head head = model::Head::masked_lm;
  StepOptions step{};
  int64_t parts = 1;  ///< micro-batches of a rank's share

  std::string name() const {
    return strategy + " " + head.name + " " + precision_name(step.precision) + " " +
           recompute_name(step.recompute) + " in " + std::to_string(parts);
  }
};

std::unique_ptr<parallel::Strategy> strategy_of(const RankCase& one, const comm::Group& group) {
  return parallel::make_strategy(parallel::Layout::parse(one.strategy), group, {.compare_every = 0});
}

/// Rows of their own for each share, with labels for each head; none for a rank that reads no share.
train::GlobalBatch share_of(const RankCase& one, const parallel::DataShare& share) {
  train::GlobalBatch batch;
  if (share.index >= share.count) return batch;
  const Rows rows =
      make_rows({.ragged = true, .longest = kLongest, .batch_size = kRows, .vocabulary = kVocabulary},
                static_cast<uint64_t>(share.index));
  batch = make_batch(rows, 0, kRows / one.parts, 1);
  batch.counts.clear();
  for (MicroBatch& part : batch.micro_batches) {
    const int64_t count = part.packing.sequences();
    part.tensors["labels"] = at::zeros({count}, at::kLong);
    part.tensors["next_sentence_labels"] = at::zeros({count}, at::kLong);
    for (const char* term : {"classification", "next_sentence"})
      part.counts[term] = static_cast<double>(count);
    add_counts(batch.counts, part.counts);
  }
  return batch;
}

/// Collective.
void expect_predicted(const RankCase& one, const comm::Group& group) {
  const auto make_model = [&] {
    return model::build_model({small_config(), one.head, master_type(one.step.precision)});
  };
  auto imagined = strategy_of(one, comm::Group::imagined(group.rank(), group.size()));
  const train::GlobalBatch batch = share_of(one, imagined->data_share());
  const StepMemory predicted = predict_memory(make_model, one.step, batch, std::move(imagined));
  TrainingStep step(make_model(), one.step, nullptr, strategy_of(one, group));
  step.run(batch);
  const StepMemory measured = measure_memory(step, batch);
  const std::string name = one.name() + ", rank " + std::to_string(group.rank());
  EXPECT_EQ(predicted.weights, measured.weights) << name;
  EXPECT_EQ(predicted.gradients, measured.gradients) << name;
  EXPECT_EQ(predicted.optimizer, measured.optimizer) << name;
  EXPECT_EQ(predicted.gathered, measured.gathered) << name;
  EXPECT_EQ(predicted.activations, measured.activations) << name;
  EXPECT_NEAR(static_cast<double>(predicted.peak()) / static_cast<double>(measured.peak()), 1, 0.03)
      << name << ": " << measured.peak();
}

class RankMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (!use_caching_allocator()) GTEST_SKIP() << "tensors are not counted here";
    at::set_num_threads(1);
  }
};

TEST_F(RankMemory, OfReplicasIsAsPredictedForEachHeadPrecisionAndRecomputation) {
  comm::test::with_ranks(2, [] {
    const comm::Group group = comm::Group::from_environment();
    for (const char* strategy : {"ddp", "zero1", "zero2", "zero3"}) {
      for (const auto& head :
           {model::Head::masked_lm, model::Head::classification, objective::NextSentence::head_of_both()}) {
        expect_predicted({strategy, head, {Precision::fp32, Recompute::none, false}}, group);
        expect_predicted({strategy, head, {Precision::bf16, Recompute::full, true}, 2}, group);
      }
      expect_predicted({strategy, model::Head::masked_lm, {Precision::bf16, Recompute::none, false}}, group);
      expect_predicted({strategy, model::Head::masked_lm, {Precision::fp32, Recompute::selective, true}, 2},
                       group);
    }
  });
}

TEST_F(RankMemory, OfStagesSlicesAndServersIsAsPredicted) {
  comm::test::with_ranks(2, [] {
    const comm::Group group = comm::Group::from_environment();
    for (const char* strategy : {"pipeline", "pipeline-zero1", "tensor", "ps-sync"}) {
      expect_predicted({strategy, model::Head::masked_lm, {Precision::fp32, Recompute::none, true}, 4},
                       group);
      expect_predicted({strategy, model::Head::masked_lm, {Precision::bf16, Recompute::full, true}, 2},
                       group);
    }
  });
}

TEST_F(RankMemory, OfProductsOfStagesSlicesAndReplicasIsAsPredicted) {
  comm::test::with_ranks(4, [] {
    const comm::Group group = comm::Group::from_environment();
    for (const char* layout :
         {"pipeline --pipeline-parallel 2 --tensor-parallel 2",
          "pipeline --pipeline-parallel 2 --tensor-parallel 2 --sequence-parallel",
          "pipeline --pipeline-parallel 2 --zero 2", "pipeline --pipeline-parallel 2 --zero 3",
          "pipeline --pipeline-parallel 4 --schedule gpipe", "tensor --tensor-parallel 2 --zero 3"}) {
      expect_predicted({layout, model::Head::masked_lm, {Precision::fp32, Recompute::none, true}, 4}, group);
      expect_predicted({layout, model::Head::masked_lm, {Precision::bf16, Recompute::full, true}, 2}, group);
    }
  });
}

/// Bytes of a stage's weights in fp32: its own, and its copies of those that belong to an earlier stage.
struct StageWeights {
  double own = 0, copies = 0;
};

std::vector<StageWeights> weights_of_stages(int stages) {
  const Model model = model::build_model({small_config(), model::Head::masked_lm});
  std::vector<StageWeights> all;
  std::set<const Parameter*> seen;
  for (const parallel::Stage& stage : parallel::cut_stages(model, parallel::balanced_begins(model, stages))) {
    std::set<const Parameter*> here;
    for (size_t s = stage.begin; s < stage.end; ++s)
      here.insert(model.segments[s].parameters.begin(), model.segments[s].parameters.end());
    StageWeights& weights = all.emplace_back();
    for (const Parameter* parameter : here)
      (seen.insert(parameter).second ? weights.own : weights.copies) +=
          4 * static_cast<double>(parameter->compute.numel());
  }
  return all;
}

/// Weights in as many versions as the papers say, gradients of each, and two moments of a stage's own. Of a copy the
/// last stage holds one version: its owner sends the one that a micro-batch uses.
TEST_F(RankMemory, OfEachStageIsThatOfTheFormula) {
  RankUseOptions options;
  options.config = small_config();
  options.rule = {.ragged = false, .longest = kLongest, .batch_size = kRows, .vocabulary = kVocabulary};
  constexpr int kStages = 4;
  const std::vector<StageWeights> stages = weights_of_stages(kStages);
  for (const auto& [schedule, versions] : std::vector<std::pair<std::string, std::function<int(int)>>>{
           {"gpipe", [](int) { return 1; }},
           {"1f1b", [](int) { return 1; }},
           {"zb-h1", [](int) { return 1; }},
           {"pipedream", [](int r) { return kStages - r; }},
           {"pipedream-vertical-sync", [](int) { return kStages; }},
           {"pipedream-2bw", [](int) { return 2; }}})
    for (int rank = 0; rank < kStages; ++rank) {
      const StageWeights& stage = stages[static_cast<size_t>(rank)];
      const StepMemory memory = predict_rank("pipeline --schedule " + schedule, rank, kStages, options);
      const std::string name = schedule + ", rank " + std::to_string(rank);
      const double weights = stage.own * versions(rank) + stage.copies;
      EXPECT_NEAR(static_cast<double>(memory.weights) / weights, 1, 0.1) << name;
      EXPECT_NEAR(static_cast<double>(memory.gradients) / (stage.own + stage.copies), 1, 0.1) << name;
      EXPECT_NEAR(static_cast<double>(memory.optimizer) / (2 * stage.own), 1, 0.1) << name;
    }
}

/// Rank 0 of two keeps one older version of its stage (docs/explanation/older_weights.md) beside what a pipeline in step
/// holds.
TEST_F(RankMemory, OfAPipelineThatDoesNotStopHasOlderVersions) {
  RankUseOptions options;
  options.config = small_config();
  options.rule = {.ragged = false, .longest = kLongest, .batch_size = kRows, .vocabulary = kVocabulary};
  const StepMemory in_step = predict_rank("pipeline", 0, 2, options),
                   stashing = predict_rank("pipeline --schedule pipedream", 0, 2, options),
                   last = predict_rank("pipeline --schedule pipedream", 1, 2, options);
  EXPECT_NEAR(static_cast<double>(stashing.weights) / static_cast<double>(in_step.weights), 2, 0.1);
  EXPECT_LT(last.weights, 1.7 * static_cast<double>(in_step.weights))
      << "of the last stage copies of shared weights alone";
}

/// S. Rajbhandari et al.: "ZeRO", figure 1: 16 bytes a weight in all, of which 12 are masters and moments; of 7.5
/// thousand million weights on 64 ranks 120, 31.4, 16.6 and 1.9 GB each.
TEST_F(RankMemory, OfManyRanksIsThatOfTheFormulaOfZero) {
  RankUseOptions options;
  options.config.encoder.layers = 36;
  options.config.encoder.width = 4096;
  options.config.encoder.heads = 32;
  options.config.encoder.feed_forward.width = 16384;
  options.rule = {
      .ragged = false, .longest = 32, .batch_size = 64, .vocabulary = options.config.encoder.vocabulary};
  options.precision = Precision::bf16;
  constexpr double kRanks = 64;
  double weights = 0;
  for (const auto& [strategy, each] : std::vector<std::pair<const char*, double>>{
           {"ddp", 16}, {"zero1", 4 + 12 / kRanks}, {"zero2", 2 + 14 / kRanks}, {"zero3", 16 / kRanks}}) {
    const StepMemory memory = predict_rank(strategy, 5, static_cast<int>(kRanks), options);
    const auto held = static_cast<double>(memory.weights + memory.gradients + memory.optimizer);
    if (weights == 0) weights = held / 16;
    EXPECT_NEAR(held / weights / each, 1, 0.01) << strategy;
  }
  EXPECT_NEAR(weights, 7.4e9, 1e8);
}

TEST_F(RankMemory, OfOneProcessIsFourBytesAWeightAndEightOfItsState) {
  RankUseOptions options;
  options.config = small_config();
  options.rule = {.ragged = false, .longest = kLongest, .batch_size = kRows, .vocabulary = kVocabulary};
  const StepMemory memory = predict_rank("single", 0, 1, options);
  const auto weights =
      static_cast<double>(model::build_model({small_config(), model::Head::masked_lm}).parameter_count());
  EXPECT_NEAR(static_cast<double>(memory.weights) / weights, 4, 0.04);
  EXPECT_NEAR(static_cast<double>(memory.optimizer) / weights, 8, 0.08);
}

TEST_F(RankMemory, OfSlicesThatNoReplicaReducesHoldsNoGradientsOfMatrices) {
  RankUseOptions options;
  options.config = small_config();
  options.rule = {.ragged = false, .longest = kLongest, .batch_size = kRows, .vocabulary = kVocabulary};
  const StepMemory alone = predict_rank("single", 0, 1, options),
                   sliced = predict_rank("tensor", 1, 2, options);
  EXPECT_LE(sliced.gradients, alone.gradients) << "biases and normalisation";
  EXPECT_LT(sliced.weights, 0.6 * static_cast<double>(alone.weights));
}

TEST_F(RankMemory, OfEveryStrategyHoldsWhatTheAdviceForModelsThatDoNotFitCountsOn) {
  RankUseOptions options;
  options.config = small_config();
  options.config.encoder.vocabulary = 400;           // first and last stage both hold the words,
  options.config.encoder.positions.rows = kLongest;  // and each slice the positions
  options.rule = {.ragged = false, .longest = kLongest, .batch_size = kRows, .vocabulary = 400};
  options.accumulation = 2;  // gradients stay between micro-batches
  train::TrainingNeeds needs;
  needs.parameters = model::build_model({options.config, model::Head::masked_lm}).parameter_count();
  for (const Precision precision : {Precision::fp32, Precision::bf16})
    for (const auto& [strategy, ranks] : std::vector<std::pair<const char*, int>>{{"single", 1},
                                                                                  {"ddp", 2},
                                                                                  {"zero1", 2},
                                                                                  {"zero2", 2},
                                                                                  {"zero3", 2},
                                                                                  {"pipeline", 2},
                                                                                  {"pipeline-zero1", 2},
                                                                                  {"tensor", 2},
                                                                                  {"zero1", 4},
                                                                                  {"zero3", 4}}) {
      options.precision = needs.precision = precision;
      double held = 0;
      for (const StepMemory& memory : predict_ranks(strategy, ranks, options))
        held += static_cast<double>(memory.weights + memory.gradients + memory.optimizer);
      train::divide_as(
          *parallel::make_strategy(strategy, comm::Group::imagined(0, ranks), {.compare_every = 0}), needs);
      // In fp32 gradients that nothing reduces come with the backward passes: at their end they are there, too.
      double counted = train::bytes_of_a_rank(needs);
      const std::string name = strategy;
      if (precision == Precision::fp32 && (name == "single" || name == "tensor"))
        counted -= 4.0 * static_cast<double>(needs.parameters) / needs.parts;
      EXPECT_NEAR(held / ranks / counted, 1, 0.08)
          << strategy << " on " << ranks << " in " << precision_name(precision);
    }
}

TEST_F(RankMemory, OfAllRanksIsToldByRank) {
  RankUseOptions options;
  options.config = small_config();
  options.rule = {.ragged = false, .longest = kLongest, .batch_size = kRows, .vocabulary = kVocabulary};
  std::vector<int> told;
  const auto stages = predict_ranks("pipeline", 2, options, [&](int done) { told.push_back(done); });
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(told, (std::vector<int>{1, 2}));
  for (const int rank : {0, 1}) {
    const StepMemory alone = predict_rank("pipeline", rank, 2, options), &among = stages[size_t(rank)];
    EXPECT_EQ(among.peak(), alone.peak()) << rank;
    EXPECT_EQ(among.weights, alone.weights) << rank;
    EXPECT_EQ(among.gathered, alone.gathered) << rank;
  }
  EXPECT_NE(stages[0].weights, stages[1].weights);
  const StepMemory whole = predict_ranks("single", 1, options).front();
  EXPECT_GT(stages[0].weights + stages[1].weights, whole.weights) << "the word embeddings are used by both";
  EXPECT_LT(stages[0].optimizer, whole.optimizer);
  EXPECT_THROW(predict_ranks("dp", 2, options), InputError);
  EXPECT_THROW(predict_ranks("ps-async", 2, options), InputError);
}

}  // namespace
}  // namespace funicular::bench::rank_memory
