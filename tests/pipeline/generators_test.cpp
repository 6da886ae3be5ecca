#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "funicular/base/error.h"
#include "funicular/pipeline/generators.h"
#include "funicular/pipeline/messages.h"
#include "funicular/pipeline/timeline.h"
#include "funicular/pipeline/validity.h"

namespace funicular::pipeline {
namespace {

Timeline simulated(const std::string& name, int p, int m, int v, const Costs& costs = {}) {
  return simulate(make_schedule(name, p, m, v), costs);
}

/// Calls `use` for every schedule of up to 8 ranks, 13 micro-batches and 4 stages a rank; gives their number.
template <class Use>
int for_all(const Use& use) {
  int count = 0;
  for (const Recipe& recipe : recipes())
    for (int v = recipe.any_chunks() ? 1 : recipe.least_chunks; v <= std::min(4, recipe.most_chunks); ++v)
      for (int p = 1; p <= 8; ++p)
        for (int m = 1; m <= 13; ++m, ++count) use(recipe.name, p, m, v);
  return count;
}

TEST(Schedules, OfUpTo8RanksAnd13MicroBatchesAreValidAndFreeOfDeadlock) {
  const auto start = std::chrono::steady_clock::now();
  const int count = for_all([](const std::string& name, int p, int m, int v) {
    SCOPED_TRACE(name + " p " + std::to_string(p) + " m " + std::to_string(m) + " v " + std::to_string(v));
    const Schedule schedule = make_schedule(name, p, m, v);
    ASSERT_NO_THROW(check(schedule));
    const Schedule whole = with_messages(schedule);
    ASSERT_NO_THROW(check(whole));
    ASSERT_EQ(deadlock_of(whole), "");
    ASSERT_EQ(schedule.ranks(), p);
    ASSERT_EQ(schedule.stages(), p * v);
    ASSERT_EQ(schedule.micro_batches(), m);
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%d schedules in %.2f s\n", count, seconds);
  // 9 without chunks or with 2 of them, 2 with 1 to 4; 8 numbers of ranks, 13 of micro-batches.
  EXPECT_EQ(count, (9 + 2 * 4) * 8 * 13);
}

TEST(Schedules, RunTheBackwardPassesOfEachStageInTheOrderOfTheMicroBatches) {
  for_all([](const std::string& name, int p, int m, int v) {
    for (const Row& row : make_schedule(name, p, m, v).rows) {
      std::vector<int> last(static_cast<size_t>(p * v), -1);
      for (const Action& action : row)
        if (gives_gradient(action.kind)) {
          ASSERT_EQ(action.micro_batch, last[static_cast<size_t>(action.stage)] + 1) << name;
          last[static_cast<size_t>(action.stage)] = action.micro_batch;
        }
    }
  });
}

TEST(Schedules, MessagesCostNoTimeWhereTheyTakeNone) {
  for_all([](const std::string& name, int p, int m, int v) {
    const Schedule schedule = make_schedule(name, p, m, v);
    ASSERT_EQ(simulate(schedule).makespan, simulate(with_messages(schedule)).makespan) << name << p << m << v;
  });
}

// ---- what the papers say they cost

struct Figures {
  std::string name;
  int p, m, v;
  Costs costs;
  double bubble;           ///< of each rank
  std::vector<int> peaks;  ///< of each rank
};

std::vector<int> times(int p, int value) {
  return std::vector<int>(static_cast<size_t>(p), value);
}

std::vector<Figures> figures() {
  std::vector<Figures> all;
  // Times of a chunk: F, I, W.
  for (const auto& [f, i, w] :
       {std::tuple(1.0, 1.0, 1.0), std::tuple(1.0, 1.5, 0.5), std::tuple(2.0, 3.0, 1.0)}) {
    const Costs costs{{f}, {i}, {w}};
    for (const int p : {1, 2, 3, 4, 8})
      for (const int m : {p, p + 1, 2 * p, 2 * p + 1, 3 * p}) {
        // Huang et al. 2019
        all.push_back({"gpipe", p, m, 1, costs, (p - 1) * (f + i + w), times(p, m)});
        std::vector<int> falling;
        for (int s = 0; s < p; ++s) falling.push_back(std::min(m, p - s));
        all.push_back({"1f1b", p, m, 1, costs, (p - 1) * (f + i + w), falling});
        all.push_back({"naive", p, m, 1, costs, (p - 1) * m * (f + i + w), times(p, 1)});
      }
  }
  for (const int p : {1, 2, 3, 4, 8})
    for (const int m : {2 * p, 2 * p + 1, 3 * p}) {
      // Qi et al. 2023: (p - 1)(F + B - W), and p micro-batches everywhere
      all.push_back({"zb-h1", p, m, 1, {}, double(p - 1), times(p, p)});
      // Qi et al. 2024: what remains is the forward passes of one chunk until the last rank begins
      all.push_back({"zb-v", p, m, 2, {}, double(p - 1), times(p, 2 * p)});
      // Qi et al. 2024, V-Half: (p + 2) / 2 micro-batches, rounded down, of a rank, which are twice as many of a stage
      all.push_back(
          {"v-half", p, m, 2, {}, double(std::max(0, (7 * p - 8) / 2)), times(p, 2 * ((p + 2) / 2))});
    }
  for (const int v : {2, 3, 4})
    for (const int p : {2, 3, 4, 8})
      for (const int m : {2 * p, 3 * p}) {
        // Narayanan et al. 2021. In chunks: (p - 1)(F + B + W) of a chunk, which is 1/v of a rank's
        std::vector<int> peaks;
        for (int r = 0; r < p; ++r) peaks.push_back(2 * (p - 1 - r) + (v - 1) * p + 1);
        all.push_back({"interleaved", p, m, v, {}, 3.0 * (p - 1), peaks});
        all.push_back({"looped-bfs", p, m, v, {}, 3.0 * (p - 1), times(p, m * v)});
      }
  all.push_back({"interleaved", 4, 8, 2, {}, 9, {11, 9, 7, 5}});
  return all;
}

TEST(Schedules, CostTheBubblesAndActivationsThatTheirPapersGive) {
  for (const Figures& each : figures()) {
    SCOPED_TRACE(each.name + " p " + std::to_string(each.p) + " m " + std::to_string(each.m) + " v " +
                 std::to_string(each.v));
    const Timeline timeline = simulated(each.name, each.p, each.m, each.v, each.costs);
    for (int r = 0; r < each.p; ++r) {
      EXPECT_DOUBLE_EQ(timeline.ranks[static_cast<size_t>(r)].bubble, each.bubble) << "rank " << r;
      EXPECT_EQ(timeline.ranks[static_cast<size_t>(r)].peak_in_flight, each.peaks[static_cast<size_t>(r)])
          << "rank " << r;
    }
  }
}

TEST(Schedules, TakeAShareOfTheStepThatGPipesFormulaGives) {
  for (const int p : {2, 4, 8})
    for (const int m : {1, 3, 16}) {
      const Timeline timeline = simulated("gpipe", p, m, 1);
      EXPECT_DOUBLE_EQ(timeline.ranks[0].bubble / timeline.makespan, double(p - 1) / (m + p - 1));
      const Timeline naive = simulated("naive", p, m, 1);
      EXPECT_DOUBLE_EQ(naive.ranks[0].bubble / naive.makespan, double(p - 1) / p);
    }
}

TEST(Schedules, ThatFillTheBubbleAreShorter) {
  // 4 ranks, 8 micro-batches, F = I = W = 1 a whole rank: each bubble is what its formula says of 24 busy units.
  EXPECT_EQ(simulated("1f1b", 4, 8, 1).makespan, 24 + 9);
  EXPECT_EQ(simulated("zb-h1", 4, 8, 1).makespan, 24 + 3);
  const Costs half{{0.5}, {0.5}, {0.5}};
  EXPECT_EQ(simulated("interleaved", 4, 8, 2, half).makespan, 24 + 4.5);
  EXPECT_EQ(simulated("zb-v", 4, 8, 2, half).makespan, 24 + 1.5);
}

/// What V-Half is for: little more than half of 1f1b's activations, and of its bubble. A step stays as regular while W + 2I >= 2F and
/// W + 2F >= 2I, which are the paper's conditions.
TEST(Schedules, HalveTheActivationsOf1f1bAndItsBubbleWithVHalf) {
  for (const int p : {2, 3, 4, 5, 8, 16})
    for (const auto& [f, i, w] :
         {std::tuple(1.0, 1.0, 1.0), std::tuple(1.0, 1.2, 0.8), std::tuple(1.0, 1.0, 0.5)}) {
      const Costs chunk{{f}, {i}, {w}}, whole{{2 * f}, {2 * i}, {2 * w}};
      const Timeline half = simulated("v-half", p, 3 * p, 2, chunk),
                     longer = simulated("v-half", p, 6 * p, 2, chunk);
      const Timeline plain = simulated("1f1b", p, 3 * p, 1, whole);
      EXPECT_LT(half.makespan, plain.makespan) << p;
      EXPECT_EQ(half.ranks[0].peak_in_flight, p + 2 - p % 2) << p << " of one stage; 1f1b holds 2 p";
      for (const RankUse& rank : longer.ranks)
        EXPECT_NEAR(rank.bubble, half.ranks[0].bubble, 1e-9) << "does not grow";
    }
  EXPECT_EQ(simulated("v-half", 8, 24, 2).ranks[0].bubble, 24);
  EXPECT_EQ(simulated("1f1b", 8, 24, 1, {{2}, {2}, {2}}).ranks[0].bubble, 42);
}

TEST(Schedules, OfUnequalStagesWaitForTheSlowest) {
  // By hand: the second of two stages takes 3 for F and 4 for B; the first 1 and 2; a message takes 0.5.
  const Costs costs{{1, 3}, {1, 2}, {1, 2}, 0.5};
  const Timeline timeline = simulated("gpipe", 2, 2, 1, costs);
  // Stage 0: F 0-1, 1-2; stage 1: F 1.5-4.5, 4.5-7.5, B 7.5-11.5, 11.5-15.5; stage 0: B 12-14, 16-18.
  EXPECT_EQ(timeline.makespan, 18);
  EXPECT_EQ(timeline.ranks[0].busy, 6);
  EXPECT_EQ(timeline.ranks[1].busy, 14);
  EXPECT_EQ(timeline.ranks[1].bubble, 4);
}

TEST(Schedules, SendMessagesOneAfterTheOtherBetweenTwoRanks) {
  const Timeline timeline = simulated("gpipe", 2, 3, 1, {{1}, {1}, {1}, 5});
  // Sent at 1, 2 and 3, of 5 each: there at 6, 11 and 16.
  std::vector<double> starts;
  for (const Span& span : timeline.spans)
    if (span.rank == 1 && span.action.kind == Kind::forward) starts.push_back(span.start);
  EXPECT_EQ(starts, (std::vector<double>{6, 11, 16}));
}

// ---- versions of the weights

int version_of(const Row& row, Kind kind, int m) {
  for (const Action& action : row)
    if (action.kind == kind && action.micro_batch == m) return action.version;
  return -1;
}

TEST(PipeDream, RunsForwardWithTheVersionOfItsRecurrenceAndBackwardWithTheSame) {
  for (const int n : {1, 2, 3, 5, 8})
    for (const int m : {1, 3, 13}) {
      const Schedule schedule = make_schedule("pipedream", n, m);
      for (int s = 0; s < n; ++s)
        for (int k = 0; k < m; ++k) {
          EXPECT_EQ(version_of(schedule.rows[static_cast<size_t>(s)], Kind::forward, k),
                    std::max(0, k - (n - 1 - s)));
          EXPECT_EQ(version_of(schedule.rows[static_cast<size_t>(s)], Kind::backward, k),
                    std::max(0, k - (n - 1 - s)));
        }
    }
}

TEST(PipeDream, KeepsNMinusSVersionsOnStageSAndTwoWith2BW) {
  for (const int n : {1, 2, 3, 5, 8}) {
    const Timeline stashed = simulated("pipedream", n, 20, 1);
    for (int s = 0; s < n; ++s) EXPECT_EQ(stashed.ranks[static_cast<size_t>(s)].versions, n - s);
    const Timeline two = simulated("pipedream-2bw", n, 8 * n, 1);
    for (int s = 0; s < n; ++s) EXPECT_LE(two.ranks[static_cast<size_t>(s)].versions, 2);
    EXPECT_EQ(two.ranks[0].versions, n == 1 ? 2 : 2);
    EXPECT_EQ(simulated("1f1b", n, 20, 1).ranks[0].versions, 1);
  }
}

TEST(PipeDream, With2BWUsesTheVersionBeforeTheNewestBatch) {
  const Schedule schedule = make_schedule("pipedream-2bw", 3, 12);
  for (const Row& row : schedule.rows)
    for (int k = 0; k < 12; ++k) EXPECT_EQ(version_of(row, Kind::forward, k), std::max(0, k / 3 - 1));
}

TEST(PipeDream, WithVerticalSyncUsesTheFirstRanksVersionAndKeepsNOnEveryStage) {
  for (const int n : {1, 2, 3, 5, 8}) {
    const Schedule schedule = make_schedule("pipedream-vertical-sync", n, 20);
    for (const Row& row : schedule.rows)
      for (int k = 0; k < 20; ++k)
        for (const Kind kind : {Kind::forward, Kind::backward})
          EXPECT_EQ(version_of(row, kind, k), std::max(0, k - (n - 1)));
    for (const RankUse& rank : simulate(schedule).ranks) EXPECT_EQ(rank.versions, n);
  }
}

TEST(PipeDream, TakesBatchesOfAnySizesThatLeaveTimeForTheirVersions) {
  for (const char* name : {"pipedream", "pipedream-vertical-sync", "pipedream-2bw"})
    for (const int n : {1, 2, 3, 4, 8}) {
      const int least = std::string(name) == "pipedream-2bw" ? std::max(1, n - 1) : 1;
      std::vector<int> sizes;
      for (const int more : {0, 2, 1, 0, 0, 3, 1}) {
        sizes.push_back(least + more);
        const Schedule schedule = make_asynchronous(name, n, sizes);
        ASSERT_NO_THROW(check(schedule)) << name << n;
        const Schedule whole = with_messages(schedule);
        ASSERT_NO_THROW(check(whole)) << name << n;
        ASSERT_EQ(deadlock_of(whole), "") << name << n;
        ASSERT_EQ(std::count_if(schedule.rows[0].begin(), schedule.rows[0].end(),
                                [](const Action& action) { return action.kind == Kind::update; }),
                  static_cast<std::ptrdiff_t>(sizes.size()));
      }
    }
  EXPECT_THROW(make_asynchronous("1f1b", 2, {1}), InputError);
  EXPECT_THROW(make_asynchronous("pipedream", 2, {1, 0}), InputError);
  EXPECT_THROW(make_asynchronous("pipedream-2bw", 4, {3, 2, 3}), InputError);
  EXPECT_NO_THROW(make_asynchronous("pipedream-2bw", 4, {3, 2}));  // nothing waits for the last
}

/// Up to the first pass of micro-batch m, without the receives of what comes then.
Row before(const Row& row, int m) {
  Row found;
  for (const Action& action : row) {
    if (action.micro_batch >= m && computes(action.kind)) break;
    if (action.micro_batch < m) found.push_back(action);
  }
  return found;
}

TEST(PipeDream, GrowsAtTheEndAlone) {
  for (const char* name : {"pipedream", "pipedream-vertical-sync", "pipedream-2bw"})
    for (const int n : {1, 2, 3, 5}) {
      const std::vector<int> sizes = {5, 4, 7, 4, 6, 9, 4};
      const Schedule whole = with_messages(make_asynchronous(name, n, sizes));
      int there = 0;
      for (size_t steps = 1; steps < sizes.size(); ++steps) {
        there += sizes[steps - 1];
        std::vector<int> known(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(steps));
        known.push_back(4);  // of what comes nothing is known
        const Schedule part = with_messages(make_asynchronous(name, n, known));
        for (size_t rank = 0; rank < whole.rows.size(); ++rank)
          ASSERT_EQ(before(part.rows[rank], there), before(whole.rows[rank], there))
              << name << n << rank << steps;
      }
    }
}

TEST(PipeDream, LeavesNoBubbleWhileThePipelineIsFull) {
  const Timeline timeline = simulated("pipedream", 4, 100, 1);
  EXPECT_EQ(timeline.makespan, 300 + 9);  // the ramps at both ends alone
}

TEST(Schedules, RefuseNumbersThatTheyDoNotHave) {
  EXPECT_THROW(make_schedule("1f1b", 0, 1), InputError);
  EXPECT_THROW(make_schedule("1f1b", 1, 0), InputError);
  EXPECT_THROW(make_schedule("1f1b", 2, 2, 2), InputError);
  EXPECT_THROW(make_schedule("zb-v", 2, 2, 1), InputError);
  EXPECT_THROW(make_schedule("interleaved", 2, 2, 65), InputError);
  try {
    make_schedule("1f2b", 2, 2);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("gpipe, 1f1b, interleaved"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace funicular::pipeline
