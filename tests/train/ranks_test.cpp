// Claims about training on several ranks: real processes, each one the whole way through the trainer.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "rank_jobs.h"

namespace funicular::train::on_ranks {
namespace {

/// Losses and norms of two runs, line by line.
void expect_near(const std::vector<Json>& lines, const std::vector<Json>& reference) {
  ASSERT_EQ(lines.size(), reference.size());
  for (size_t i = 0; i < lines.size(); ++i)
    for (const char* key : {"loss", "gradient_norm", "eval_loss", "eval_perplexity"}) {
      if (!reference[i].contains(key)) continue;
      const double expected = reference[i].at(key).get<double>();
      EXPECT_NEAR(lines[i].at(key).get<double>(), expected, 1e-10 * std::fabs(expected))
          << key << " in line " << i;
    }
}

TEST_F(TrainingOnRanks, EveryStrategyTrainsAndEvaluatesAsOneProcessAndResumesTheCheckpointsOfOthers) {
  if (is_rank()) return run_rank();
  const std::vector<Place> places = all_places();
  for (const Place& place : places) expect_done({place.strategy, place.ranks, folder / place.name()});
  const auto reference = read_lines(folder / "single-1/metrics.jsonl");
  ASSERT_EQ(reference.size(), 8u);  // six steps, two evaluations
  for (const Place& place : places) {
    SCOPED_TRACE(place.name());
    const fs::path output = folder / place.name();
    EXPECT_LT(model_difference(output, folder / "single-1", kDealtSteps), 1e-10);
    EXPECT_LT(difference(output / "model/model.safetensors", folder / "single-1/model/model.safetensors"),
              1e-10);
    EXPECT_EQ(read_json(output / "run.json").at("result").at("tokens"),
              read_json(folder / "single-1/run.json").at("result").at("tokens"));
    expect_near(read_lines(output / "metrics.jsonl"), reference);
  }
  // Each goes on from step 3 of one of the others; all the others have their turn.
  for (size_t i = 0; i < places.size(); ++i) {
    const Place &place = places[i], &writer = places[(i * 5 + 7) % places.size()];
    SCOPED_TRACE(place.name() + " goes on from " + writer.name());
    const fs::path output = folder / ("from-" + std::to_string(i));
    expect_done({place.strategy, place.ranks, output,
                 (folder / writer.name() / "checkpoints" / checkpoint_name(3)).string()});
    EXPECT_EQ(resumed_from(output), 3);
    EXPECT_LT(model_difference(output, folder / "single-1", kDealtSteps), 1e-10);
  }
}

TEST_F(TrainingOnRanks, BatchesThatGrowOrCountTokensAreTheSameOnAnyRanksAndAfterAResume) {
  if (is_rank()) return run_rank();
  for (const std::string batches : {"growing", "tokens", "growing tokens"}) {
    const auto job = [&](const Place& place) {
      return Job{.strategy = place.strategy,
                 .ranks = place.ranks,
                 .output = folder / (batches + place.name()),
                 .batches = batches};
    };
    const Job single = job({"single", 1});
    expect_done(single);
    std::vector<Place> places{{"ddp", 2}};
    if (batches == "growing tokens")  // has both parts; the other two would only take time
      places = {{"ddp", 2}, {"zero3", 4}, {"pipeline+1f1b+2", 2}, {"tensor", 2}};
    for (const Place& place : places) {
      SCOPED_TRACE(batches + " " + place.name());
      expect_done(job(place));
      EXPECT_LT(model_difference(job(place).output, single.output, kDealtSteps), 1e-10);
      EXPECT_EQ(read_json(job(place).output / "run.json").at("result").at("tokens"),
                read_json(single.output / "run.json").at("result").at("tokens"));
    }
    Job resumed = single;
    resumed.resume = (single.output / "checkpoints" / checkpoint_name(3)).string();
    resumed.output = folder / (batches + "resumed");
    expect_done(resumed);
    EXPECT_EQ(resumed_from(resumed.output), 3);
    EXPECT_EQ(model_difference(resumed.output, single.output, kDealtSteps), 0) << batches;
  }
}

/// Whatever the layout, the same checkpoint becomes the same: slices do not change the recurrence of PipeDream-2BW.
TEST_F(TrainingOnRanks, CheckpointsGoBetweenSchedulesWithAndWithoutAFlush) {
  if (is_rank()) return run_rank();
  const auto train = [&](const char* name, const char* strategy, int ranks, const fs::path& from = {}) {
    Job job{.strategy = strategy, .ranks = ranks, .output = folder / name};
    if (!from.empty()) job.resume = (folder / from / "checkpoints" / checkpoint_name(3)).string();
    expect_done(job);
    if (!from.empty()) {
      EXPECT_EQ(resumed_from(folder / name), 3);
    }
  };
  const auto apart = [&](const char* a, const char* b) {
    return model_difference(folder / a, folder / b, kDealtSteps);
  };
  train("flushed", "single", 1);
  train("full", "pipeline+pipedream-2bw+2", 2);
  train("flushed-full-2", "pipeline+pipedream-2bw+2", 2, "flushed");
  train("flushed-full-sliced", "pipeline+pipedream-2bw+2x2", 4, "flushed");
  train("full-flushed-1", "single", 1, "full");
  train("full-flushed-2", "pipeline+1f1b+2", 2, "full");
  train("full-flushed-sliced", "tensor", 2, "full");
  EXPECT_LT(apart("flushed-full-2", "flushed-full-sliced"), 1e-10);
  EXPECT_LT(apart("full-flushed-1", "full-flushed-2"), 1e-10);
  EXPECT_LT(apart("full-flushed-1", "full-flushed-sliced"), 1e-10);
  EXPECT_GT(apart("flushed-full-2", "flushed"), 1e-6);
  EXPECT_GT(apart("full-flushed-1", "full"), 1e-6);
}

TEST_F(TrainingOnRanks, DeterministicLayoutsLeaveTheSameBytes) {
  if (is_rank()) return run_rank();
  const auto bytes = [&](const std::string& name) {
    const fs::path checkpoint = folder / name / "checkpoints" / checkpoint_name(kDealtSteps);
    return read_file(checkpoint / "model.safetensors") + read_file(checkpoint / "optimizer.safetensors");
  };
  expect_done({.strategy = "single", .ranks = 1, .output = folder / "one", .deterministic = true});
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "ps-sync"})
    for (const int ranks : {2, 3, 4}) {
      if (ranks == 3 && std::string(strategy) > "zero1") continue;
      const std::string name = std::string(strategy) + std::to_string(ranks);
      expect_done({.strategy = strategy, .ranks = ranks, .output = folder / name, .deterministic = true});
      EXPECT_TRUE(bytes(name) == bytes("one")) << name;
    }
}

TEST_F(TrainingOnRanks, ReplacedTokensAreLearntUnderEveryStrategyAsInOneProcessAndResumedByAnyOther) {
  if (is_rank()) return run_rank();
  const std::vector<Place> places{{"single", 1}, {"ddp", 2}, {"zero2", 2}, {"zero3", 3}};
  for (const Place& place : places)
    expect_done({.strategy = place.strategy,
                 .ranks = place.ranks,
                 .output = folder / place.name(),
                 .finds_replaced = true});
  const auto reference = read_lines(folder / "single-1/metrics.jsonl");
  ASSERT_EQ(reference.size(), 8u);
  for (const Json& line : reference) {
    const std::string loss = line.contains("eval_loss") ? "eval_loss" : "loss";
    EXPECT_NEAR(line.at(loss).get<double>(),
                line.at(loss + "_mlm").get<double>() + 50 * line.at(loss + "_replaced").get<double>(), 1e-9)
        << line;
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const Place &place = places[i], &writer = places[(i + 1) % places.size()];
    SCOPED_TRACE(place.name() + ", " + writer.name());
    const fs::path output = folder / place.name(), moved = folder / ("moved-" + place.name());
    EXPECT_LT(model_difference(output, folder / "single-1", kDealtSteps), 1e-10);
    const auto lines = read_lines(output / "metrics.jsonl");
    ASSERT_EQ(lines.size(), reference.size());
    for (size_t line = 0; line < lines.size(); ++line)
      for (const char* key : {"loss", "eval_loss", "eval_loss_mlm", "eval_loss_replaced", "eval_perplexity",
                              "eval_generator_accuracy", "eval_discriminator_accuracy",
                              "eval_replaced_precision", "eval_replaced_recall"}) {
        ASSERT_EQ(reference[line].contains(key), lines[line].contains(key)) << key;
        if (!reference[line].contains(key)) continue;
        const double expected = reference[line].at(key).get<double>();
        EXPECT_NEAR(lines[line].at(key).get<double>(), expected, 1e-10 * std::fabs(expected)) << key;
      }
    expect_done({.strategy = place.strategy,
                 .ranks = place.ranks,
                 .output = moved,
                 .resume = (folder / writer.name() / "checkpoints" / checkpoint_name(3)).string(),
                 .finds_replaced = true});
    EXPECT_EQ(resumed_from(moved), 3);
    EXPECT_LT(model_difference(moved, folder / "single-1", kDealtSteps), 1e-10);
  }
}

TEST_F(TrainingOnRanks, ReplacedTokensAreLearntWithTheSameBytesUnderDeterministicLayouts) {
  if (is_rank()) return run_rank();
  const auto bytes = [&](const std::string& name) {
    const fs::path checkpoint = folder / name / "checkpoints" / checkpoint_name(kDealtSteps);
    return read_file(checkpoint / "model.safetensors") + read_file(checkpoint / "optimizer.safetensors");
  };
  for (const Place& place : {Place{"single", 1}, {"ddp", 2}, {"zero1", 4}, {"zero2", 2}, {"zero3", 2}}) {
    expect_done({.strategy = place.strategy,
                 .ranks = place.ranks,
                 .output = folder / place.name(),
                 .deterministic = true,
                 .finds_replaced = true});
    EXPECT_TRUE(bytes(place.name()) == bytes("single-1")) << place.name();
  }
  // What was interrupted goes on with the same bytes.
  expect_done({.strategy = "single",
               .ranks = 1,
               .output = folder / "resumed",
               .resume = (folder / "single-1" / "checkpoints" / checkpoint_name(3)).string(),
               .deterministic = true,
               .finds_replaced = true});
  EXPECT_EQ(resumed_from(folder / "resumed"), 3);
  EXPECT_TRUE(bytes("resumed") == bytes("single-1"));
}

TEST_F(TrainingOnRanks, ASignalToOneRankSavesOnAllAndTheRunGoesOn) {
  if (is_rank()) return run_rank();
  expect_done({"ddp", 2, folder / "whole"});
  for (const char* strategy : {"ddp", "zero3", "pipeline+1f1b+2"}) {
    Job job{strategy, 2, folder / strategy};
    job.event = "signal";
    EXPECT_EQ(start(job), (Endings{75, 75}));
    job.event = "none";
    expect_done(job);
    EXPECT_GT(resumed_from(job.output), 0);
    EXPECT_LT(model_difference(job.output, folder / "whole", kDealtSteps), 1e-10);
  }
}

TEST_F(TrainingOnRanks, PipelinesThatUpdateWhileFullResumeToTheSameBytes) {
  if (is_rank()) return run_rank();
  for (const Place& place : {Place{"pipeline+pipedream+2", 2},
                             {"pipeline+pipedream-vertical-sync+3", 3},
                             {"pipeline+pipedream-2bw+2", 4},
                             {"pipeline+pipedream-2bw+2x2", 4},
                             {"pipeline+pipedream+3@0x2,2", 3},
                             {"pipeline+pipedream-2bw+3@0x2,2", 3}}) {
    SCOPED_TRACE(place.name());
    Job job{place.strategy, place.ranks, folder / place.name()};
    job.again = folder / (place.name() + "-again");
    expect_done(job);
    EXPECT_EQ(resumed_from(job.again), 3);
    const fs::path last = "checkpoints/" + checkpoint_name(kDealtSteps);
    for (const fs::path& file : {last / "model.safetensors", last / "optimizer.safetensors",
                                 last / "state.json", fs::path("model/model.safetensors")})
      EXPECT_TRUE(read_file(job.again / file) == read_file(job.output / file)) << file;
    // Records tell the loss of the whole batch, though each rank has a part of it: the first step's is that of any layout.
    if (place.ranks == 2) expect_done({"single", 1, folder / "single"});
    const auto lines = read_lines(job.output / "metrics.jsonl"),
               one = read_lines(folder / "single/metrics.jsonl");
    ASSERT_EQ(lines.size(), one.size());
    EXPECT_NEAR(lines[0].at("loss").get<double>(), one[0].at("loss").get<double>(), 1e-10);
    // Weights that are some updates older give about the same.
    for (size_t i = 0; i < one.size(); ++i)
      for (const char* key : {"loss", "eval_loss"})
        if (one[i].contains(key)) {
          EXPECT_NEAR(lines[i].at(key).get<double>(), one[i].at(key).get<double>(), 0.05) << key << i;
        }
    // Each stage's newest gradients are of another step.
    EXPECT_NEAR(lines[lines.size() - 2].at("gradient_norm").get<double>(),
                one[one.size() - 2].at("gradient_norm").get<double>(),
                0.2 * one[one.size() - 2].at("gradient_norm").get<double>());
    EXPECT_GT(model_difference(job.output, folder / "single", kDealtSteps), 1e-6);
    EXPECT_EQ(read_json(job.output / "run.json").at("result").at("tokens"),
              read_json(folder / "single/run.json").at("result").at("tokens"));
  }
}

TEST_F(TrainingOnRanks, ASignalBetweenTwoMeetingsEmptiesThePipelineAndSaves) {
  if (is_rank()) return run_rank();
  Job job{"pipeline+pipedream+3", 3, folder / "run"};
  job.event = "early-signal";
  EXPECT_EQ(start(job), (Endings{75, 75, 75}));
  const auto saved = list_checkpoints(job.output / "checkpoints");
  ASSERT_FALSE(saved.empty());
  EXPECT_EQ(saved.front().first, 2);
  Job two_steps{"pipeline+pipedream+3", 3, folder / "two"};  // which the end of the run empties
  two_steps.steps = 2;
  expect_done(two_steps);
  const auto weights = [](const Job& of) {
    return read_file(of.output / "checkpoints" / checkpoint_name(2) / "model.safetensors");
  };
  EXPECT_EQ(weights(job), weights(two_steps));
  job.event = "none";
  expect_done(job);
  EXPECT_EQ(resumed_from(job.output), 2);
  EXPECT_EQ(read_json(job.output / "run.json").at("result").at("step"), kDealtSteps);
}

TEST_F(TrainingOnRanks, StagesThatDoNotStopForRecordsGiveTheSameWeightsHoweverManyThereAre) {
  if (is_rank()) return run_rank();
  std::vector<std::string> weights;
  for (const int64_t logging : {1, 3}) {
    Job job{"pipeline+pipedream+2", 2, folder / std::to_string(logging)};
    job.logging = logging;
    expect_done(job);
    weights.push_back(
        read_file(job.output / "checkpoints" / checkpoint_name(kDealtSteps) / "model.safetensors"));
  }
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_F(TrainingOnRanks, WhatOneRankCannotReadStopsAllAndSavesFirst) {
  if (is_rank()) return run_rank();
  for (const char* strategy : {"ddp", "zero2", "pipeline+gpipe+3"}) {
    Job job{strategy, 3, folder / strategy};
    job.event = "loader";
    EXPECT_EQ(start(job), (Endings{2, 2, 2})) << "2: the error named rank 1 and the row";
    EXPECT_EQ(list_checkpoints(job.output / "checkpoints").front().first, 3);
    job.event = "evaluation";
    job.output = folder / (std::string(strategy) + "-evaluation");
    EXPECT_EQ(start(job), (Endings{2, 2, 2}));
    EXPECT_EQ(list_checkpoints(job.output / "checkpoints").front().first, 3) << "what was trained is saved";
  }
}

}  // namespace
}  // namespace funicular::train::on_ranks
