#include "funicular/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <random>

#include "funicular/base/error.h"
#include "funicular/base/json.h"
#include "funicular/pipeline/drawing.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/timeline.h"
#include "funicular/pipeline/validity.h"

namespace funicular::pipeline {
namespace {

/// What the call says when it refuses; "": it does not.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(ScheduleFile, IsReadAndPrintedAgain) {
  for (const Recipe& recipe : recipes()) {
    const Schedule made = with_messages(make_schedule(recipe.name, 3, 5));
    const Schedule read = parse_schedule(to_text(made), "file");
    EXPECT_EQ(read.rows, made.rows) << recipe.name;
    EXPECT_EQ(to_text(read), to_text(made));
  }
}

TEST(ScheduleFile, HasOneRowARankCommentsAndEveryKindOfAction) {
  const Schedule schedule = parse_schedule(
      "# two ranks\n\n0F0@0, 0SF0 0RB0 0I0@0 0W0@0 0R 0U1 # the first\r\n1RF0\t1F0 1B0 1SB0 1U\n-", "file");
  ASSERT_EQ(schedule.ranks(), 3);
  EXPECT_EQ(schedule.lines, (std::vector<int>{3, 4, 5}));
  EXPECT_TRUE(schedule.rows[2].empty());
  EXPECT_EQ(schedule.stages(), 2);
  EXPECT_EQ(schedule.micro_batches(), 1);
  EXPECT_EQ(to_text(schedule), "0F0@0 0SF0 0RB0 0I0@0 0W0@0 0R 0U1\n1RF0 1F0 1B0 1SB0 1U\n-\n");
  EXPECT_EQ(schedule.rows[0][6], (Action{0, Kind::update, -1, 1}));
}

TEST(ScheduleFile, ThatIsNoneIsRefusedWithItsLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0F0\n\n1G0", "mine.txt:3: \"1G0\": expected one of F, B, I, W, SF, RF, SB, RB, R, U"},
      {"F0", "mine.txt:1: \"F0\": expected a stage's number"},
      {"0F", "expected a micro-batch's number from 0 to 65535, found the end"},
      {"0F0 0F65536", "\"0F65536\": expected a micro-batch's number"},
      {"0F99999999999999999999", "expected a micro-batch's number"},
      {"0F0@", "expected a version's number behind the @"},
      {"0F0x", "expected nothing more, found \"x\""},
      {"0R1", "expected nothing more"},
      {"0SF0@1", "expected nothing more"},
      {"0f0", "expected one of F"},
      {"- 0F0", "\"-\": expected a stage's number"},
      {"# nothing\n", "mine.txt: there is no action in it"},
      {"-\n-\n", "mine.txt: there is no action in it"},
      {"", "mine.txt: there is no action in it"}};
  for (const auto& [text, message] : cases) {
    const std::string said = refusal([&, &t = text] { parse_schedule(t, "mine.txt"); });
    EXPECT_SAYS(said, message);
  }
  EXPECT_SAYS(refusal([] { read_schedule("/no/such/schedule.txt"); }), "/no/such/schedule.txt");
}

TEST(ScheduleFile, DamagedInAnyWayIsReadOrRefusedNeverMore) {
  const std::string whole = to_text(with_messages(make_schedule("pipedream", 3, 4)));
  std::mt19937 random(1);
  const auto survives = [](const std::string& text) {
    refusal([&] {
      const Schedule schedule = parse_schedule(text, "file");
      if (schedule.stages() * schedule.micro_batches() > 10000) return;
      check(schedule);
      simulate(with_messages(schedule));
      draw_svg(schedule, simulate(schedule));
    });
  };
  for (size_t length = 0; length < whole.size(); ++length) survives(whole.substr(0, length));
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole;
    for (int flips = 1 + i % 3; flips > 0; --flips)
      text[random() % text.size()] =
          i % 2 ? static_cast<char>(random()) : "0123456789FBIWSRU@ \n"[random() % 20];
    survives(text);
  }
}

// ---- what is no schedule

TEST(Check, RefusesWhatCannotBeRunOrTrainsSomethingElse) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0F0 0B0 0F1\n1F0 1B0 1F1 1B1", "mine.txt:1, rank 0: 0B1 is missing"},
      {"0F0 0F0 0B0", "0F0 stands there twice"},
      {"0B0 0F0", "mine.txt:1, rank 0: 0B0 stands before 0F0, which it needs"},
      {"0F0 0W0 0I0", "0W0 stands before 0I0, which it needs"},
      {"0F0 0I0", "0W0 is missing"},
      {"0F0 0W0", "0I0 is missing"},
      {"0F0 0B0 0W0", "0B0 is there, and its parts"},
      {"0F0 1F0\n1B0 0B0", "1B0 stands here, and other actions of its stage with this micro-batch on rank 0"},
      {"0F0 0B0\n2F0 2B0", "1F0 is missing"},
      {"0F0 0U 0B0", "0U stands before 1 backward passes"},
      {"0F0 0R 0B0", "0R stands before 1 backward passes"},
      {"0F0 0B0 0U 0U", "0U stands there twice"},
      {"0F0 0B0 0U 0R", "0R stands behind the update"},
      {"0F0 0B0 0R 0R", "0R stands there twice"},
      {"0F0@1 0B0@1 0U1", "0F0@1 uses a version that is not there; expected @0 to @0"},
      {"0F0@0 0U1 0B0@1", "0B0@1 uses another version than its forward pass, which had @0"},
      {"0F0@0 0B0@0 0U2", "0U2 follows version 0; expected it to make version 1"},
      {"0F0@0 0B0", "0B0 uses a version that is not there"},
      {"0F0 0SF0 0B0\n1RF0 1F0 1B0 1SB0", "0RB0 is missing"},
      {"0SF0 0F0 0RB0 0B0\n1RF0 1F0 1B0 1SB0", "0SF0 stands before 0F0"},
      {"0F0 0SF0 0B0 0RB0\n1RF0 1F0 1B0 1SB0", "0B0 stands before 0RB0"},
      {"0F0 0B0 0SB0", "0SB0 is a message beyond the first or the last stage"},
      {"0F0 0SF0 0B0", "0SF0 is a message beyond the first or the last stage"},
      {"0F0 0SF0 1F0 1B0 0B0", "0SF0 is a message from a rank to itself"}};
  for (const auto& [text, message] : cases) {
    const std::string said = refusal([&, &t = text] { check(parse_schedule(t, "mine.txt")); });
    EXPECT_SAYS(said, message);
  }
  EXPECT_EQ(refusal([] { check(parse_schedule("0F0 0B0 0R 0U\n1F0 1I0 1W0 1R 1U\n-", "mine.txt")); }), "");
}

TEST(Check, NamesTheCircleOfRanksThatWaitForEachOther) {
  // Each waits for the other's forward pass of another micro-batch.
  const std::string text = "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0";
  EXPECT_SAYS(refusal([&] { check(parse_schedule(text, "mine.txt")); }),
              "ranks wait for each other for ever: rank 0 waits at 0B0 for 1I0 of rank 1, rank 1 waits at "
              "1F1 for 0F1 of "
              "rank 0");
}

TEST(Check, NamesTheCircleOfADeadlockUnderStrictRendezvous) {
  // 1f1b on two ranks with two micro-batches, each value received when it is used: the smallest that locks up.
  const std::string text =
      "0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n"
      "1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1";
  EXPECT_SAYS(refusal([&] { check(parse_schedule(text, "mine.txt")); }),
              "mine.txt: a deadlock where a send ends when it is received: rank 0 sends in 0SF1 to rank 1, "
              "rank 1 sends in "
              "1SB0 to rank 0");
  EXPECT_EQ(deadlock_of(with_messages(make_schedule("1f1b", 2, 2))), "");
}

TEST(Check, RefusesMessagesThatAreReceivedInAnotherOrderThanTheyAreSent) {
  const std::string text =
      "0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n"
      "1RF1 1RF0 1F0 1B0 1SB0 1F1 1B1 1SB1";
  EXPECT_SAYS(refusal([&] { check(parse_schedule(text, "mine.txt")); }),
              "rank 0 sends in 0SF0 to rank 1, rank 1 receives in 1RF1 from rank 0");
}

TEST(Messages, AreReceivedBeforeWhatStartsLaterAndStayAsTheyAre) {
  const Schedule whole = with_messages(make_schedule("1f1b", 2, 2));
  EXPECT_EQ(to_text(whole),
            "0F0 0SF0 0F1 0SF1 0RB0 0B0 0RB1 0B1\n"
            "1RF0 1RF1 1F0 1B0 1SB0 1F1 1B1 1SB1\n");
  EXPECT_EQ(with_messages(whole).rows, whole.rows);
}

TEST(Timeline, RefusesCostsThatAreNone) {
  const Schedule schedule = make_schedule("1f1b", 2, 2);
  EXPECT_SAYS(refusal([&] { simulate(schedule, {{1, 2, 3}, {1}, {1}}); }), "one for each of 2, found 3");
  EXPECT_SAYS(refusal([&] { simulate(schedule, {{-1}, {1}, {1}}); }), "forward time of at least 0");
  EXPECT_SAYS(refusal([&] { simulate(schedule, {{1}, {1}, {1}, -1}); }), "message time of at least 0");
  EXPECT_SAYS(refusal([&] { simulate(schedule, {.weight_memory = {1, 2, 3}}); }), "memory of weights");
}

// ---- drawings

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

double peak_memory(const Schedule& schedule, int rank, const Costs& costs) {
  return simulate(schedule, costs).ranks[static_cast<size_t>(rank)].peak_memory;
}

TEST(Timeline, AddsUpWhatEachRankHoldsOfUnequalStages) {
  Costs costs;
  costs.activation_memory = {10, 20, 30, 40};
  costs.weight_memory = {1, 2, 3, 4};
  costs.state_memory = {100};
  for (int rank = 0; rank < 4; ++rank) {
    const double each = 10 * (rank + 1), weights = rank + 1;
    EXPECT_EQ(peak_memory(make_schedule("gpipe", 4, 8), rank, costs), 8 * each + weights + 100);
    EXPECT_EQ(peak_memory(make_schedule("1f1b", 4, 8), rank, costs), (4 - rank) * each + weights + 100);
    // As many versions of the weights as micro-batches on their way.
    EXPECT_EQ(peak_memory(make_schedule("pipedream", 4, 8), rank, costs),
              (4 - rank) * (each + weights) + 100);
    EXPECT_EQ(peak_memory(make_schedule("pipedream-vertical-sync", 4, 8), rank, costs),
              (4 - rank) * each + 4 * weights + 100);
  }
}

TEST(Timeline, AddsUpWhatARankHoldsOfAllItsStages) {
  Costs costs;
  costs.activation_memory = {1, 2, 10, 20};
  costs.weight_memory = {100, 200, 300, 400};
  const Schedule schedule = make_schedule("looped-bfs", 2, 3);
  EXPECT_EQ(peak_memory(schedule, 0, costs), 3 * (1 + 10) + 100 + 300);
  EXPECT_EQ(peak_memory(schedule, 1, costs), 3 * (2 + 20) + 200 + 400);
}

TEST(Drawing, HasABoxForEachActionThatTakesTime) {
  const Schedule schedule = make_schedule("zb-v", 4, 8);
  const Timeline timeline = simulate(schedule);
  const std::string svg = draw_svg(schedule, timeline);
  EXPECT_EQ(count(svg, "<title>"), 4u * 2 * 8 * 3);
  EXPECT_EQ(count(svg, "<svg"), 1u);
  EXPECT_SAYS(svg, "zb-v: 4 ranks, 8 stages, 8 micro-batches, time 51");
  EXPECT_SAYS(svg, "<title>7I0 ");
  Schedule hostile = schedule;
  hostile.name = "<script>\"&";
  EXPECT_EQ(draw_svg(hostile, timeline).find("<script"), std::string::npos);
}

TEST(Drawing, AsATraceHasEachActionAtItsTime) {
  const Schedule schedule = make_schedule("gpipe", 2, 2);
  const Json trace =
      parse_json(draw_trace(schedule, simulate(schedule, {{1, 3}, {1, 2}, {1, 2}, 0.5})), "trace");
  double last = 0, busy = 0;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    last = std::max(last, event.at("ts").get<double>() + event.at("dur").get<double>());
    busy += event.at("dur").get<double>();
  }
  EXPECT_EQ(last, 18000);
  EXPECT_EQ(busy, 20000);
}

}  // namespace
}  // namespace funicular::pipeline
