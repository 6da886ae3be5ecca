// Claims about where a run cuts its model by measured cost.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <thread>

#include "funicular/base/file.h"
#include "funicular/train/stage_choice.h"
#include "helpers.h"

namespace funicular::train {
namespace {

std::vector<int64_t> shape_of_hidden(const MicroBatch& batch) {
  return {batch.packing.sequences(), 4};
}

/// Four segments, of which the last takes most of the time.
Model make_uneven_model() {
  torch::manual_seed(1);
  Model model;
  for (const int number : {0, 1, 2, 3}) {
    Parameter* const weight = model.add_parameter(
        "weight" + std::to_string(number), torch::randn({4, 4}, torch::kDouble), ParameterKind::matrix);
    const std::string in = number == 0 ? "values" : "x";
    model.segments.push_back({"segment" + std::to_string(number),
                              {weight},
                              {Port{in}},
                              {Port{"x", shape_of_hidden}},
                              [=](Activations given, const Pass& pass) {
                                if (number == 3) std::this_thread::sleep_for(std::chrono::milliseconds(4));
                                const torch::Tensor x = torch::linear(given.at(in), weight->compute);
                                if (number == 3) pass.loss.add("square", x.square().sum());
                                return Activations{{"x", x}};
                              }});
  }
  return model;
}

TEST(StageChoice, FollowsTheCostAndIsKeptByTheRunThatGoesOn) {
  const test::TemporaryFolder folder;
  Model model = make_uneven_model();
  const TensorDataset points({{"values", torch::randn({16, 4}, torch::kDouble)}});
  TrainerOptions options{.output = folder / "run", .max_steps = 1, .batch_size = 4};
  options.precision = Precision::fp64;
  const parallel::Layout pipeline{.data = 1, .staged = true, .pipeline = 2};
  const StageChoice choice = choose_stages(model, points, options, pipeline, {});
  EXPECT_EQ(choice.begins, (std::vector<int64_t>{0, 3})) << "by weights it would be 0, 2";
  EXPECT_EQ(choice.record.at("segment_seconds").size(), 4u);

  // A run that was cut otherwise when its machine was busy.
  make_directories(folder / "run/checkpoints/step-000001");
  write_file_atomically(folder / "run/run.json", R"({"stages": {"begins": [0, 1]}})");
  EXPECT_EQ(choose_stages(model, points, options, pipeline, {}).begins, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(choose_stages(model, points, options, {.data = 1, .staged = true, .pipeline = 4}, {}).begins,
            (std::vector<int64_t>{0, 1, 2, 3}))
      << "that is a choice for two stages";
  // With stages of several ranks: one process exchanges nothing, so that all ranks may have all.
  const StageChoice many = choose_stages(model, points, options, pipeline, {}, /*replicates=*/true);
  EXPECT_EQ(many.begins, (std::vector<int64_t>{0}));
  EXPECT_EQ(many.replicas, (std::vector<int>{2}));
  write_file_atomically(folder / "run/run.json", R"({"stages": {"begins": [0, 1], "replicas": [2, 1]}})");
  const parallel::Layout three{.data = 1, .staged = true, .pipeline = 3};
  EXPECT_EQ(choose_stages(model, points, options, three, {}, true).replicas, (std::vector<int>{2, 1}));
  EXPECT_EQ(choose_stages(model, points, options, pipeline, {}, true).replicas, (std::vector<int>{2}))
      << "that is a choice for three ranks";
  EXPECT_EQ(choose_stages(model, points, options, pipeline, {}).begins, (std::vector<int64_t>{0, 3}))
      << "and of stages of several";
  options.resume = "never";
  EXPECT_EQ(choose_stages(model, points, options, pipeline, {}).begins, (std::vector<int64_t>{0, 3}));
}

}  // namespace
}  // namespace funicular::train
