#include "funicular/pipeline/recording.h"

#include <gtest/gtest.h>

#include "funicular/base/error.h"
#include "funicular/base/file.h"
#include "funicular/base/json.h"
#include "funicular/base/temporary_folder.h"
#include "funicular/pipeline/drawing.h"
#include "funicular/pipeline/generators.h"

namespace funicular::pipeline::recorded {
namespace {

Recording read(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "passes.json").string();
  write_file_atomically(path, text);
  return read_recording(path);
}

/// As if the simulation had been the run.
Recording run_of(const Schedule& schedule, const Costs& costs, double begin = 0) {
  Recording recording{schedule, simulate(schedule, costs).spans};
  recording.schedule.lines.clear();
  for (Span& span : recording.spans) {
    span.start += begin;
    span.end += begin;
  }
  return recording;
}

TEST(Recording, IsWrittenAndReadAgain) {
  for (const char* name : {"1f1b", "zb-v", "pipedream"}) {
    const Recording written = run_of(make_schedule(name, 3, 4), {{2}, {1.5}, {7}, 0, {4}});
    const Recording again = read(to_json_text(written));
    EXPECT_EQ(again.schedule.rows, written.schedule.rows) << name;
    EXPECT_EQ(again.schedule.name, name);
    ASSERT_EQ(again.spans.size(), written.spans.size()) << name;
    EXPECT_EQ(to_json_text(again), to_json_text(read(to_json_text(again)))) << name;
  }
}

TEST(Recording, OfARunThatWentAsPlannedIsThePlan) {
  for (const char* name : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "pipedream-2bw"}) {
    const Schedule schedule = make_schedule(name, 3, 5);
    const auto stages = static_cast<size_t>(schedule.stages());
    Costs costs{std::vector<double>(stages, 2), std::vector<double>(stages, 3),
                std::vector<double>(stages, 4)};
    costs.forward.back() = 7;
    costs.update = std::vector<double>(stages, 6);
    costs.update.front() = 1.5;
    const Timeline planned = simulate(schedule, costs);
    const Recording recording = run_of(schedule, costs, 1000);
    const Timeline measured = measured_timeline(recording);
    const Timeline again = simulate(schedule, mean_costs(recording));
    for (const Timeline* timeline : {&measured, &again}) {
      EXPECT_DOUBLE_EQ(timeline->makespan, planned.makespan) << name;
      for (size_t rank = 0; rank < 3; ++rank) {
        EXPECT_DOUBLE_EQ(timeline->ranks[rank].busy, planned.ranks[rank].busy) << name << rank;
        EXPECT_DOUBLE_EQ(timeline->ranks[rank].bubble, planned.ranks[rank].bubble) << name << rank;
        EXPECT_EQ(timeline->ranks[rank].peak_in_flight, planned.ranks[rank].peak_in_flight) << name << rank;
      }
    }
    EXPECT_EQ(measured.spans.front().start, 0) << name;
  }
}

/// Each rank waits for the other: F and F, B and B, and between the two micro-batches the longer update.
TEST(Recording, OfUpdatesHasTheTimeOfEachStages) {
  const Schedule schedule =
      parse_schedule("0F0@0 0B0@0 0U1 0F1@1 0B1@1 0U2\n1F0@0 1B0@0 1U1 1F1@1 1B1@1 1U2\n", "updates");
  Costs costs;
  EXPECT_EQ(simulate(schedule, costs).makespan, 12);
  costs.update = {5, 1};
  const Timeline planned = simulate(schedule, costs);
  EXPECT_EQ(planned.makespan, 22);
  EXPECT_EQ(planned.ranks[0].busy, 16);
  EXPECT_EQ(planned.ranks[1].busy, 8);
  EXPECT_EQ(mean_costs(run_of(schedule, costs)).update, (std::vector<double>{5, 1}));
}

TEST(Recording, LeavesTheFirstMicroBatchOutOfTheMeanIfThereAreOthers) {
  const Costs several = mean_costs(read(
      R"({"schedule": "gpipe", "rows": ["0F0 0F1 0F2 0B0 0B1 0B2"],
          "milliseconds": [[0, "0F0", 0, 9], [0, "0F2", 11, 13], [0, "0F1", 9, 10], [0, "0B0", 13, 17]]})"));
  EXPECT_EQ(several.forward, std::vector<double>{1.5});
  EXPECT_EQ(several.input_gradient, std::vector<double>{4});
  EXPECT_EQ(several.weight_gradient, std::vector<double>{0});
}

TEST(Recording, ThatIsNoneIsRefusedWithTheFileAndWhatIsWrong) {
  const std::string head = R"({"schedule": "gpipe", "rows": ["0F0 0B0"], "milliseconds": )";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0F0 0B0", "passes.json"},
      {"[]", "it has no rows or no milliseconds"},
      {R"({"rows": 1, "milliseconds": []})", "it has no rows or no milliseconds"},
      {R"({"rows": [1], "milliseconds": []})", "a row is 1"},
      {R"({"rows": ["0X0"], "milliseconds": []})", "0X0"},
      {head + "[]}", "it has no pass"},
      {head + "[[0, \"0F0\", 0]]}", "a pass is [0,\"0F0\",0]"},
      {head + "[[0, \"0F0\", 0, \"1\"]]}", "a pass is [0,\"0F0\",0,\"1\"]"},
      {head + "[[0.5, \"0F0\", 0, 1]]}", "a pass is [0.5"},
      {head + "[[1, \"0F0\", 0, 1]]}", "rank 1 has no pass 0F0 in its row"},
      {head + "[[-1, \"0F0\", 0, 1]]}", "rank -1 has no pass 0F0 in its row"},
      {head + "[[0, \"0F0\", 2, 1]]}", "a pass is [0,\"0F0\",2,1]"},
      {head + "[[0, \"0F0 0B0\", 0, 1]]}", "no pass 0F0 0B0 in its row"},
      {head + "[[0, \"0F0\", 0, 1], [0, \"0F0\", 1, 2]]}", "no pass 0F0 in its row, or has run it before"},
      {R"({"rows": ["0F0@0 0B0@0 0R 0U1"], "milliseconds": [[0, "0R", 0, 1]]})", "no pass 0R in its row"},
      {R"({"rows": ["0F0@0 0B0@0 0U1"], "milliseconds": [[0, "0U2", 0, 1]]})", "no pass 0U2 in its row"},
      {head + "[[0, \"0F1\", 0, 1]]}", "rank 0 has no pass 0F1 in its row"},
  };
  for (const auto& [text, part] : cases) {
    std::string said;
    try {
      read(text);
    } catch (const InputError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find(part), std::string::npos) << text << "\n" << said;
    EXPECT_NE(said.find("passes.json"), std::string::npos) << said;
  }
}

TEST(Recording, IsDrawnBelowThePlanOnTheSameScale) {
  const Schedule schedule = make_schedule("gpipe", 2, 2);
  const Timeline planned = simulate(schedule);
  Recording recording = run_of(schedule, {});
  for (Span& span : recording.spans) span.start *= 2, span.end *= 2;
  const Timeline measured = measured_timeline(recording);
  const std::string svg = draw_svg(schedule, planned, &measured);
  size_t boxes = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++boxes;
  EXPECT_EQ(boxes, planned.spans.size() + measured.spans.size());
  EXPECT_NE(svg.find("time 9 planned"), std::string::npos) << svg;
  EXPECT_NE(svg.find("time 18 measured"), std::string::npos) << svg;
  EXPECT_EQ(draw_svg(schedule, planned).find("planned"), std::string::npos);

  const Json trace = parse_json(draw_trace(schedule, planned, &measured), "trace");
  std::vector<double> last(2);
  for (const Json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X")
      last.at(event.at("pid")) =
          std::max(last.at(event.at("pid")), event.at("ts").get<double>() + event.at("dur").get<double>());
  EXPECT_EQ(last, (std::vector<double>{9000, 18000}));
}

}  // namespace
}  // namespace funicular::pipeline::recorded
