// Claims about training on several ranks in 16 bits, and with gradients that are rounded for their exchange.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rank_jobs.h"

namespace funicular::train::on_ranks {
namespace {

const fs::path kLast = "checkpoints/" + checkpoint_name(kDealtSteps);

/// A run, which then goes on once more from its third step: weights and state of the last one are the same bytes.
Job run_and_resume(const Place& place, const std::string& precision, const TemporaryFolder& folder) {
  Job job{place.strategy, place.ranks, folder / (place.name() + precision)};
  job.precision = precision;
  job.again = folder / (place.name() + precision + "-again");
  expect_done(job);
  EXPECT_EQ(resumed_from(job.again), 3);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(read_file(job.again / kLast / file) == read_file(job.output / kLast / file)) << file;
  return job;
}

/// Of the losses in two runs' lines.
double largest_difference(const fs::path& first, const fs::path& second) {
  const auto a = read_lines(first), b = read_lines(second);
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i].contains("loss"))
      largest = std::fmax(largest, std::fabs(a[i].at("loss").get<double>() - b[i].at("loss").get<double>()));
  return largest;
}

TEST_F(TrainingOnRanks, MixedPrecisionFollowsOneProcessAndMovesBetweenLayouts) {
  if (is_rank()) return run_rank();
  const auto losses = [&](const std::string& name) {
    std::vector<double> values;
    for (const Json& line : read_lines(folder / name / "metrics.jsonl"))
      if (line.contains("loss")) values.push_back(line.at("loss").get<double>());
    return values;
  };
  for (const char* precision : {"bf16", "fp16"}) {
    const std::string suffix = std::string("-") + precision;
    Job job{"single", 1, folder / ("single" + suffix)};
    job.precision = precision;
    expect_done(job);
    const std::vector<double> reference = losses("single" + suffix);
    for (const Place& place : {Place{"ddp", 2},
                               {"zero1", 2},
                               {"zero2", 3},
                               {"zero3", 3},
                               {"ps-sync", 3},
                               {"pipeline+1f1b+3", 3},
                               {"pipeline+gpipe+2", 4},
                               {"pipeline-zero1+1f1b+3@0,2x2", 3}}) {
      const std::string name = place.name() + suffix, moved = name + "-moved";
      Job whole{place.strategy, place.ranks, folder / name};
      whole.precision = precision;
      expect_done(whole);
      // The other half under this layout, from what one process saved.
      Job half{place.strategy, place.ranks, folder / moved,
               (folder / ("single" + suffix) / "checkpoints" / checkpoint_name(3)).string()};
      half.precision = precision;
      expect_done(half);
      const std::vector<double> own = losses(name), after = losses(moved);
      ASSERT_EQ(own.size(), reference.size()) << name;
      // The same weights give the same products; sums of gradients are in float, where their order may move
      // one weight in thousands to the other neighbour in 16 bits.
      for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], reference[i], 1e-5) << name << " " << i;
      ASSERT_EQ(after.size(), 3u);
      for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(after[i], reference[3 + i], 1e-5) << moved << " " << i;
      if (std::string(precision) == "fp16") {
        EXPECT_EQ(read_json(folder / name / "run.json").at("result").at("skipped_steps"),
                  read_json(folder / ("single" + suffix) / "run.json").at("result").at("skipped_steps"));
      }
    }
  }
  EXPECT_GT(read_json(folder / "single-fp16/run.json").at("result").at("skipped_steps").get<int64_t>(), 0);
}

/// What is computed with is a 16-bit copy of the weights. It is not in the checkpoint, so a resume makes it
/// anew: a copy of anything else changes the fourth step, and every byte after it.
TEST_F(TrainingOnRanks, MixedPrecisionResumesToTheSameBytes) {
  if (is_rank()) return run_rank();
  for (const char* precision : {"bf16", "fp16"})
    for (const Place& place : {Place{"single", 1},
                               {"ddp", 2},
                               {"zero1", 2},
                               {"zero2", 2},
                               {"zero3", 3},
                               {"ps-sync", 2},
                               {"pipeline+1f1b+2", 2},
                               {"pipeline-zero1+1f1b+2", 4},
                               {"pipeline-zero3+1f1b+2", 4},
                               {"pipeline+1f1b+2x2", 4},
                               {"pipeline+1f1b+3@0x2,2", 3}}) {
      SCOPED_TRACE(place.name() + " in " + precision);
      const Job job = run_and_resume(place, precision, folder);
      for (const fs::path& file : {kLast / "state.json", fs::path("model/model.safetensors")})
        EXPECT_TRUE(read_file(job.again / file) == read_file(job.output / file)) << file;
      const TrainingState third = read_state(job.output / "checkpoints" / checkpoint_name(3));
      if (third.loss_scaler.is_object()) {
        EXPECT_EQ(third.loss_scaler.at("skipped_steps"), 1) << "before the resume weights must have changed";
      }
    }
}

/// Of schedules that update weights while the pipeline is full, which keep 16-bit copies of older versions, too. In fp16 the first
/// update is left out.
TEST_F(TrainingOnRanks, OlderWeightsIn16BitsFollowThoseIn64AndResumeToTheSameBytes) {
  if (is_rank()) return run_rank();
  for (const Place& place : {Place{"pipeline+pipedream+2", 2},
                             {"pipeline+pipedream-vertical-sync+3", 3},
                             {"pipeline+pipedream-2bw+2", 2},
                             {"pipeline+pipedream-2bw+2x2", 4},
                             {"pipeline-zero3+pipedream-2bw+2", 4}}) {
    const Job exact{place.strategy, place.ranks, folder / (place.name() + "-fp64")};
    expect_done(exact);
    for (const std::string precision : {"bf16", "fp16"}) {
      SCOPED_TRACE(place.name() + " in " + precision);
      const Job job = run_and_resume(place, precision, folder);
      EXPECT_EQ(read_state(job.again / kLast).loss_scaler, read_state(job.output / kLast).loss_scaler);
      const double difference =
          largest_difference(job.output / "metrics.jsonl", exact.output / "metrics.jsonl");
      EXPECT_LT(difference, precision == "fp16" ? 0.2 : 0.02);
      EXPECT_GT(difference, 1e-7) << "nothing was rounded";
      const Json result = read_json(job.output / "run.json").at("result");
      EXPECT_EQ(result.value("skipped_steps", 0), precision == "fp16" ? 1 : 0);
    }
  }
}

TEST_F(TrainingOnRanks, RoundedReductionsFollowExactOnesAndResumeToTheSameBytes) {
  if (is_rank()) return run_rank();
  expect_done({"single", 1, folder / "single"});
  for (const char* reduce : {"bf16", "fp16"}) {
    SCOPED_TRACE(reduce);
    Job whole{"ddp", 2, folder / (std::string("whole-") + reduce)};
    whole.reduce = reduce;
    expect_done(whole);
    const fs::path third = "checkpoints/" + checkpoint_name(3) + "/model.safetensors";
    const double rounded = difference(whole.output / third, folder / "single" / third);
    EXPECT_GT(rounded, 1e-7) << "nothing was rounded";
    EXPECT_LT(difference(whole.output / "model/model.safetensors", folder / "single/model/model.safetensors"),
              0.02);
    // The residuals are part of the state.
    Job moved = whole;
    moved.output = folder / (std::string("moved-") + reduce);
    moved.resume = (whole.output / "checkpoints" / checkpoint_name(3)).string();
    expect_done(moved);
    EXPECT_EQ(resumed_from(moved.output), 3);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(read_file(moved.output / "checkpoints" / checkpoint_name(kDealtSteps) / file),
                read_file(whole.output / "checkpoints" / checkpoint_name(kDealtSteps) / file))
          << file;
    // Other layouts do without them.
    for (const Place& place : {Place{"ddp", 3}, {"zero2", 2}, {"single", 1}}) {
      Job other{place.strategy, place.ranks, folder / (place.name() + reduce), moved.resume};
      expect_done(other);
      EXPECT_EQ(resumed_from(other.output), 3);
    }
  }
}

}  // namespace
}  // namespace funicular::train::on_ranks
