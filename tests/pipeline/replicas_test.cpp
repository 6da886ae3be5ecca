// Claims about stages that lie on several ranks of a pipeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/pipeline/drawing.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/partition.h"
#include "funicular/pipeline/placement.h"
#include "funicular/pipeline/timeline.h"
#include "funicular/pipeline/validity.h"

namespace funicular::pipeline {
namespace {

/// What the call says when it refuses; "": it does not.
template <class Call>
std::string words_of_refusal(const Call& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

/// Calls `use` with the ranks of each stage, of up to `stages` stages on up to `most` ranks each.
template <class Use>
void for_all_replicas(int stages, int most, const Use& use) {
  for (int count = 1; count <= stages; ++count) {
    std::vector<int> replicas(static_cast<size_t>(count), 1);
    while (true) {
      use(replicas);
      size_t next = 0;
      while (next < replicas.size() && replicas[next] == most) replicas[next++] = 1;
      if (next == replicas.size()) break;
      ++replicas[next];
    }
  }
}

std::string text_of(const std::vector<int>& replicas) {
  std::string text;
  for (const int count : replicas) text += (text.empty() ? "" : ", ") + std::to_string(count);
  return text;
}

constexpr const char* kNames[] = {"naive", "gpipe", "1f1b", "zb-h1"};

TEST(ReplicatedStages, AreValidAndFreeOfDeadlockInAnyNumbers) {
  int count = 0;
  for_all_replicas(3, 4, [&](const std::vector<int>& replicas) {
    for (const char* name : kNames)
      for (int m = 1; m <= 13; ++m, ++count) {
        SCOPED_TRACE(name + (" on " + text_of(replicas)) + " m " + std::to_string(m));
        const Schedule schedule = make_replicated(name, replicas, m);
        ASSERT_EQ(schedule.ranks(), std::accumulate(replicas.begin(), replicas.end(), 0));
        ASSERT_EQ(schedule.stages(), static_cast<int>(replicas.size()));
        ASSERT_EQ(schedule.micro_batches(), m);
        ASSERT_NO_THROW(check(schedule));
        const Schedule whole = with_messages(schedule);
        ASSERT_NO_THROW(check(whole));
        ASSERT_EQ(deadlock_of(whole), "");
        ASSERT_EQ(simulate(schedule).makespan, simulate(whole).makespan);
      }
  });
  EXPECT_EQ(count, (4 + 16 + 64) * 4 * 13);
  for (const char* name : kNames) {
    ASSERT_NO_THROW(check(with_messages(make_replicated(name, {3, 1, 4, 2, 1}, 29)))) << name;
    ASSERT_NO_THROW(check(with_messages(make_replicated(name, {1, 8}, 3)))) << name;
  }
}

TEST(ReplicatedStages, TakeMicroBatchesInTurnAndBackwardPassesInTheirOrder) {
  for_all_replicas(3, 3, [](const std::vector<int>& replicas) {
    for (const char* name : kNames) {
      const Schedule schedule = make_replicated(name, replicas, 7);
      size_t row = 0;
      for (size_t s = 0; s < replicas.size(); ++s)
        for (int number = 0; number < replicas[s]; ++number, ++row) {
          std::vector<int> expected, forward, gradients;
          for (int m = number; m < 7; m += replicas[s]) expected.push_back(m);
          for (const Action& action : schedule.rows[row]) {
            EXPECT_EQ(action.stage, static_cast<int>(s));
            if (action.kind == Kind::forward) forward.push_back(action.micro_batch);
            if (gives_gradient(action.kind)) gradients.push_back(action.micro_batch);
          }
          EXPECT_EQ(forward, expected) << name << " on " << text_of(replicas);
          EXPECT_EQ(gradients, expected) << name << " on " << text_of(replicas);
        }
    }
  });
}

TEST(ReplicatedStages, OfOneRankEachAreTheScheduleOfAsManyRanks) {
  for (const char* name : kNames)
    for (int p = 1; p <= 6; ++p)
      for (int m = 1; m <= 13; ++m)
        EXPECT_EQ(make_replicated(name, std::vector<int>(static_cast<size_t>(p), 1), m).rows,
                  make_schedule(name, p, m).rows)
            << name << p << m;
}

/// Time from one micro-batch to the next while the pipeline is full.
double pace(const std::vector<int>& replicas, const Costs& costs) {
  int turn = 1;
  for (const int count : replicas) turn = std::lcm(turn, count);
  const int some = turn * std::max(1, 60 / turn);
  const double once = simulate(make_replicated("1f1b", replicas, some), costs).makespan,
               twice = simulate(make_replicated("1f1b", replicas, 2 * some), costs).makespan;
  return (twice - once) / some;
}

TEST(ReplicatedStages, GoAsFastAsTheDynamicProgrammeSays) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> share(0, 1);
  for_all_replicas(4, 3, [&](const std::vector<int>& replicas) {
    for (const bool equal : {true, false}) {
      Costs costs{{}, {}, {}, 0};
      double slowest = 0;
      for (size_t s = 0; s < replicas.size(); ++s) {
        const double seconds = replicas[s] * (equal ? 1 : share(random));
        costs.forward.push_back(0.3 * seconds);
        costs.input_gradient.push_back(0.4 * seconds);
        costs.weight_gradient.push_back(0.3 * seconds);
        const SegmentCosts segment{{seconds}, {0}, {}};
        slowest = std::max(slowest, seconds_of(segment, {0, 1, replicas[s]}));
      }
      EXPECT_NEAR(pace(replicas, costs), slowest, 1e-9) << text_of(replicas);
    }
  });
}

/// 1f1b of one, two and one ranks, which begin with so many forward passes; a micro-batch every 3 if they are enough.
double time_on_1_2_1(const std::vector<size_t>& first, int m) {
  std::string text;
  for (const auto& [stage, number, count] :
       std::vector<std::tuple<int, int, int>>{{0, 0, 1}, {1, 0, 2}, {1, 1, 2}, {2, 0, 1}}) {
    std::vector<std::string> forward, backward;
    for (int i = number; i < m; i += count) {
      forward.push_back(std::to_string(stage) + "F" + std::to_string(i) + " ");
      backward.push_back(std::to_string(stage) + "B" + std::to_string(i) + " ");
    }
    for (size_t i = 0; i < forward.size() + first[static_cast<size_t>(stage)]; ++i) {
      if (i < forward.size()) text += forward[i];
      if (i >= first[static_cast<size_t>(stage)]) text += backward[i - first[static_cast<size_t>(stage)]];
    }
    text += "\n";
  }
  const Schedule schedule = parse_schedule(text, "rows");
  check(schedule);
  return simulate(schedule, {{1, 2, 1}, {1, 2, 1}, {1, 2, 1}, 0}).makespan;
}

TEST(ReplicatedStages, OfPipeDreamsRuleWaitForEachOthersTurns) {
  // Of four ranks, one in the first stage: four micro-batches, the first three of them before the first one comes back.
  EXPECT_EQ(time_on_1_2_1({3, 1, 0}, 80) - time_on_1_2_1({3, 1, 0}, 40), 40 * 4.5);
  EXPECT_EQ(time_on_1_2_1({4, 1, 0}, 80) - time_on_1_2_1({4, 1, 0}, 40), 40 * 3);
}

TEST(ReplicatedStages, ThatThePlannerFindsRunAtItsPaceAndBeatOneRankEach) {
  // By hand: of six equal segments two ranks take the first four. One rank each: the slower one has three.
  const SegmentCosts costs{
      {1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, {false, false, false, true, false}};
  const Partition best = best_partition(costs, 3);
  EXPECT_EQ(best.parts, (std::vector<Part>{{0, 6, 3}}));  // nothing is exchanged: all on all
  SegmentCosts heavy = costs;  // the gradients of the last two take long to exchange
  heavy.weight_bytes = {0, 0, 0, 0, 3, 3};
  heavy.bytes_per_second = 4;
  const Partition cut = best_partition(heavy, 3);
  ASSERT_EQ(cut.parts, (std::vector<Part>{{0, 4, 2}, {4, 6, 1}}));
  EXPECT_EQ(cut.seconds, 2);
  EXPECT_NEAR(pace({2, 1}, {{4.0 / 3, 2.0 / 3}, {4.0 / 3, 2.0 / 3}, {4.0 / 3, 2.0 / 3}, 0}), cut.seconds,
              1e-9);
}

TEST(ReplicatedStages, HoldWhatTheFormulaSays) {
  for_all_replicas(4, 3, [](const std::vector<int>& replicas) {
    std::vector<int> most(replicas.size(), 1);  // of each replica of a stage, with 1f1b
    for (size_t s = replicas.size() - 1; s-- > 0;)
      most[s] = 1 + (most[s + 1] * replicas[s + 1] + replicas[s] - 1) / replicas[s];
    for (const int m : {1, 4, 60}) {
      const auto peaks = [&](const char* name) { return simulate(make_replicated(name, replicas, m)).ranks; };
      const auto naive = peaks("naive"), gpipe = peaks("gpipe"), interlocked = peaks("1f1b");
      size_t row = 0;
      for (size_t s = 0; s < replicas.size(); ++s)
        for (int number = 0; number < replicas[s]; ++number, ++row) {
          const int own = (m + replicas[s] - 1 - number) / replicas[s];
          EXPECT_EQ(naive[row].peak_in_flight, std::min(own, 1));
          EXPECT_EQ(gpipe[row].peak_in_flight, own);
          EXPECT_EQ(interlocked[row].peak_in_flight, std::min(own, most[s]))
              << text_of(replicas) << " m " << m;
        }
    }
  });
}

TEST(ReplicatedStages, CostByHandWhatTheTimelineSays) {
  // A first stage of 2 for F and 2 for B on two ranks, a second of 1 and 1: a micro-batch every 2.
  const Costs costs{{2, 1}, {1, 0.5}, {1, 0.5}, 0};
  const Timeline timeline = simulate(make_replicated("1f1b", {2, 1}, 4), costs);
  // Ranks 0 and 1: F0 F1 0-2, F2 F3 2-4; rank 2: F0 2-3, B0 3-4, F1 4-5, B1 5-6, F2 6-7, B2 7-8, F3 8-9, B3 9-10;
  // rank 0: B0 4-6, B2 8-10; rank 1: B1 6-8, B3 10-12.
  EXPECT_EQ(timeline.makespan, 12);
  EXPECT_EQ(timeline.ranks[0].bubble, 4);
  EXPECT_EQ(timeline.ranks[1].bubble, 4);
  EXPECT_EQ(timeline.ranks[2].bubble, 4);
  EXPECT_EQ(timeline.ranks[0].peak_in_flight, 2);
}

TEST(ReplicatedStages, OfOtherSchedulesAndOfNoRanksAreRefused) {
  for (const Recipe& recipe : recipes()) {
    const std::string said = words_of_refusal([&] { make_replicated(recipe.name, {2, 1}, 4); });
    if (recipe.replicates) {
      EXPECT_EQ(said, "");
      continue;
    }
    EXPECT_EQ(recipe.replicates, recipe.most_chunks == 1);
    expect_part(said, recipe.name +
                          " has one rank a stage, found stages on 2, 1 ranks; expected one of: naive, "
                          "gpipe, 1f1b, zb-h1, pipedream, pipedream-vertical-sync, pipedream-2bw");
  }
  expect_part(words_of_refusal([] { make_replicated("1f1b", {2, 0}, 4); }), "found stages on 2, 0 ranks");
  expect_part(words_of_refusal([] { make_replicated("1f1b", {}, 4); }), "expected at least 1 stage");
  expect_part(words_of_refusal([] { make_replicated("1f1b", {2, 1}, 0); }), "and 0 micro-batches");
}

// ---- that update while the pipeline is full

constexpr const char* kAsynchronous[] = {"pipedream", "pipedream-vertical-sync", "pipedream-2bw"};

/// Of each row: up to the first pass of micro-batch m or a later one, without what is received of these.
Row known_part(const Row& row, int m) {
  Row found;
  for (const Action& action : row) {
    if (action.micro_batch >= m && computes(action.kind)) break;
    if (action.micro_batch < m) found.push_back(action);
  }
  return found;
}

TEST(ReplicatedStages, ThatUpdateWhileFullAreValidAndGrowAtTheEndAlone) {
  for_all_replicas(3, 3, [](const std::vector<int>& replicas) {
    const int ranks = std::accumulate(replicas.begin(), replicas.end(), 0);
    for (const char* name : kAsynchronous) {
      const int least = least_batch(name, replicas);
      std::vector<int> sizes;
      int there = 0;
      for (const int more : {0, 2, 1, 0, 0, 3, 1}) {
        SCOPED_TRACE(name + (" on " + text_of(replicas)) + ", updates: " + std::to_string(sizes.size() + 1));
        std::vector<int> known = sizes;
        known.push_back(std::max(least, 3 * ranks));  // of what comes nothing is known
        sizes.push_back(least + more);
        const Schedule schedule = make_asynchronous(name, replicas, sizes);
        ASSERT_NO_THROW(check(schedule));
        const Schedule whole = with_messages(schedule),
                       part = with_messages(make_asynchronous(name, replicas, known));
        ASSERT_NO_THROW(check(whole));
        ASSERT_EQ(deadlock_of(whole), "");
        for (size_t rank = 0; rank < whole.rows.size(); ++rank) {
          const Row before = known_part(part.rows[rank], there);
          Row after =
              known_part(whole.rows[rank], there);  // and the update alone, of which a rank has no pass
          after.resize(std::min(after.size(), before.size()));
          ASSERT_EQ(to_text(Schedule{"", {after}, {}}), to_text(Schedule{"", {before}, {}})) << rank;
        }
        there += sizes.back();
      }
    }
  });
}

TEST(ReplicatedStages, OfPipeDreamUseTheVersionsOfItsRecurrence) {
  for_all_replicas(3, 3, [](const std::vector<int>& replicas) {
    std::vector<int> most(replicas.size(), 1);
    for (size_t s = replicas.size() - 1; s-- > 0;)
      most[s] = 1 + (most[s + 1] * replicas[s + 1] + replicas[s] - 1) / replicas[s];
    const int turn = usual_batch("pipedream", replicas);
    for (const int m : {turn, 2 * turn}) {
      const std::vector<int> sizes(9, m);
      const auto version = [&](size_t s, int k) {
        const int c = m / replicas[s], ahead = most[s] - 1 - k % m / replicas[s];
        return std::max(0, k / m - std::max(0, (ahead + c - 1) / c));
      };
      const Schedule stashed = make_asynchronous("pipedream", replicas, sizes),
                     synced = make_asynchronous("pipedream-vertical-sync", replicas, sizes);
      for (const Schedule* schedule : {&stashed, &synced})
        for (const Row& row : schedule->rows)
          for (const Action& action : row)
            if (action.kind != Kind::update) {
              const auto s = static_cast<size_t>(schedule == &stashed ? action.stage : 0);
              ASSERT_EQ(action.version, version(s, action.micro_batch))
                  << schedule->name << " on " << text_of(replicas) << ": " << to_text(action);
            }
    }
  });
}

TEST(ReplicatedStages, ThatUpdateWhileFullWaitForEachOtherAtUpdates) {
  const auto pace_with = [](const std::vector<int>& replicas, int micro_batches) {
    Costs costs{{}, {}, {}, 0};
    for (const int count : replicas)
      for (auto* times : {&costs.forward, &costs.input_gradient, &costs.weight_gradient})
        times->push_back(count);
    const auto time = [&](int updates) {
      const std::vector<int> sizes(static_cast<size_t>(updates), micro_batches);
      return simulate(make_asynchronous("pipedream", replicas, sizes), costs).makespan;
    };
    return (time(40) - time(20)) / (20 * micro_batches);
  };
  // By F = I = W = 1 of a rank's share: 3 from one micro-batch to the next, if nobody waits.
  for (const std::vector<int>& replicas : {std::vector<int>{2, 1}, {3, 1}, {2, 2}, {1, 1, 1}})
    EXPECT_EQ(pace_with(replicas, usual_batch("pipedream", replicas)), 3) << text_of(replicas);
  // The second of two ranks begins later than the first, which waits for it after each turn.
  EXPECT_EQ(pace_with({1, 2}, 2), 3.75);
  EXPECT_LT(pace_with({1, 2}, 8), 3.75);
}

// ---- in files

TEST(ReplicatedStages, InAFileMayTakeMicroBatchesInAnyTurnWithOrWithoutReductions) {
  const auto accepted = [](const char* text) {
    const Schedule schedule = parse_schedule(text, "mine.txt");
    check(schedule);
    check(with_messages(schedule));
    return with_messages(schedule);
  };
  const Schedule whole = accepted("0F0 0B0 0F3 0B3\n0F1 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3");
  for (const size_t rank : {0u, 1u}) {
    std::vector<int> sent, received;
    for (const Action& action : whole.rows[rank]) {
      if (action.kind == Kind::send_forward) sent.push_back(action.micro_batch);
      if (action.kind == Kind::receive_backward) received.push_back(action.micro_batch);
      if (is_message(action.kind)) {
        EXPECT_EQ(peer_of(action, Placement(whole)), 2);
      }
    }
    EXPECT_EQ(sent, rank == 0 ? (std::vector<int>{0, 3}) : (std::vector<int>{1, 2}));
    EXPECT_EQ(received, sent);
  }
  for (const Action& action : whole.rows[2])
    if (is_message(action.kind)) {
      EXPECT_EQ(peer_of(action, Placement(whole)), action.micro_batch % 3 == 0 ? 0 : 1);
    }
  accepted("0F0 0B0 0R 0U\n0R 0U\n1F0 1B0 1R 1U");  // a replica without a micro-batch
  const Placement placement(parse_schedule("0F0 0B0\n0F1 0B1\n-\n1F0 1B0 1F1 1B1", "mine.txt"));
  EXPECT_EQ(placement.ranks_of(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(placement.ranks_of(1), (std::vector<int>{3}));
  EXPECT_TRUE(placement.replicated());
  EXPECT_EQ(placement.first_beside(1), 0);
  EXPECT_EQ(placement.first_beside(2), 2);
  EXPECT_EQ(placement.first_beside(3), 3);
  EXPECT_EQ(placement.rank_of(0, 1), 1);
  EXPECT_EQ(placement.rank_of(0, 4), 0) << "beyond the rows: in turn";
}

TEST(ReplicatedStages, InAFileThatCannotBeRunAreRefusedWithTheRow) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"0F0 0B0\n0F0 0B0\n1F0 1B0",
       "mine.txt:2, rank 1: 0F0 stands here, and other actions of its stage with this micro-batch on rank 0"},
      {"0F0 0B1\n0F1 0B0\n1F0 1B0 1F1 1B1", "mine.txt:2, rank 1: 0F1 stands here"},
      {"0F0 0B0\n0F1\n1F0 1B0 1F1 1B1", "mine.txt:2, rank 1: 0B1 is missing"},
      {"0F0 0B0 1F0 1B0\n0F1 0B1\n1F1 1B1",
       "mine.txt:2, rank 1: it has stage 0 with rank 0, and only one of them has stage 1"},
      {"0F0 0B0 0R\n0F1 0B1\n1F0 1B0 1F1 1B1",
       "mine.txt:2, rank 1: it has stage 0 with rank 0, and has 0 of 0R, of which that has 1; expected as "
       "many"},
      {"0F0 0B0\n0F1 0B1 0U\n1F0 1B0 1F1 1B1",
       "mine.txt:2, rank 1: it has stage 0 with rank 0, and has 1 of 0U, of which that has 0"},
      {"0F0 0R 0B0\n0F1 0B1 0R\n1F0 1B0 1F1 1B1", "mine.txt:1, rank 0: 0R stands before 1 backward passes"},
      {"0F0 0B0 0R 0R\n0F1 0B1 0R\n1F0 1B0 1F1 1B1", "mine.txt:1, rank 0: 0R stands there twice"},
      {"0F0@0 0B0@0 0U1\n0F1@0 0B1@0\n1F0@0 1B0@0 1F1@0 1B1@0 1U1",
       "mine.txt:2, rank 1: it has stage 0 with rank 0, and has 0 of 0U, of which that has 1"},
      {"0F0@0 0B0@0 0U1\n0F1@0 0U1 0B1@1\n1F0@0 1B0@0 1F1@0 1B1@0 1U1",
       "mine.txt:2, rank 1: 0B1@1 uses another"},
      // The first rank updates before what the second does before its update.
      {"0F0@0 0B0@0 0U1 0F2@1 0B2@1 0U2\n0F1@0 0B1@0 0U1 0U2\n1F0@0 1B0@0 1F2@0 1B2@0 1F1@0 1B1@0 1U1 1U2",
       "rank 0 waits at 0U1 for 0U1 of rank 1, rank 1 waits at 0B1@0 for 1I1 of rank 2, rank 2 waits at "
       "1F2@0 for "
       "0F2 of rank 0"},
      // The second stage waits for the second rank's micro-batch first, which waits for the first's.
      {"0F0 0B0 0F2 0B2\n0F1 0B1\n1F0 1F1 1B1 1F2 1B2 1B0",
       "ranks wait for each other for ever: rank 0 waits"},
      {"0F0 0SF0 0RB0 0B0\n0F1 0SF1 0RB1 0B1\n1RF0 1F0 1B0 1SB0 1F1 1B1 1SB1",
       "mine.txt:3, rank 2: 1RF1 is missing"},
      {"0F0 0SF0 0RB0 0B0\n0SF0 0F1 0SF1 0RB1 0B1\n1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1",
       "mine.txt:2, rank 1: 0SF0 stands here, and other actions of its stage with this micro-batch on rank "
       "0"}};
  for (const auto& [text, message] : cases)
    expect_part(words_of_refusal([&, &t = text] { check(parse_schedule(t, "mine.txt")); }), message);
}

TEST(ReplicatedStages, InAFileThatLockUpUnderStrictRendezvousAreNamed) {
  // Rank 0 sends its second micro-batch before it receives what comes back of the first.
  const std::string text =
      "0F0 0SF0 0F2 0SF2 0RB0 0B0 0RB2 0B2\n"
      "0F1 0SF1 0RB1 0B1\n"
      "1RF0 1F0 1B0 1SB0 1RF1 1F1 1B1 1SB1 1RF2 1F2 1B2 1SB2";
  expect_part(words_of_refusal([&] { check(parse_schedule(text, "mine.txt")); }),
              "rank 0 sends in 0SF2 to rank 2, rank 2 sends in 1SB0 to rank 0");
}

TEST(ReplicatedStages, AreDrawnOnTheirRows) {
  const Schedule schedule = make_replicated("1f1b", {2, 1}, 3);
  const std::string svg = draw_svg(schedule, simulate(schedule));
  size_t boxes = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++boxes;
  EXPECT_EQ(boxes, 2u * 2 * 3);
  expect_part(svg, "1f1b: 3 ranks, 2 stages, 3 micro-batches");
  // One stage a rank: one shade of each colour.
  EXPECT_EQ(svg.find("hsl(212,62%,75%)"), std::string::npos);
}

}  // namespace
}  // namespace funicular::pipeline
