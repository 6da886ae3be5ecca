// Claims about which layouts funicular prove --all compares.
#include "funicular/prove/pairs.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

#include "funicular/parallel/layout.h"

namespace funicular::prove::pairs_tests {
namespace {

/// Schedule, ranks of a pipeline, micro-batches of one, slices, ZeRO's stage.
using Cut = std::tuple<std::string, int, int64_t, int, int>;

std::set<Cut> cuts_of(const std::vector<Pair>& pairs) {
  std::set<Cut> cuts;
  for (const Pair& pair : pairs) {
    if (pair.objective != "masked-lm") continue;
    const Layout layout = Layout::parse(pair.a);
    const parallel::Layout& shared = layout.shared;
    if (!shared.staged || shared.devices > 0) continue;
    const parallel::Layout on = shared.on(layout.ranks);
    const int64_t share = pair.batch_size / on.data,
                  size = layout.micro_batch_size > 0 ? layout.micro_batch_size : share;
    cuts.insert({shared.schedule, on.pipeline, (share + size - 1) / size, on.tensor, on.zero});
  }
  return cuts;
}

TEST(Pairs, HaveEveryScheduleOnUpToFourRanksWithUpToEightMicroBatchesSlicesAndStagesOfZero) {
  const std::set<Cut> cuts = cuts_of(all_pairs({}, "masked-lm"));
  for (const std::string schedule : {"naive", "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-v",
                                     "v-half", "pipedream", "pipedream-vertical-sync", "pipedream-2bw"})
    for (int64_t count = 1; count <= 8; ++count) {
      if (count > 1 && (schedule == "pipedream" || schedule == "pipedream-vertical-sync")) continue;
      const auto expect_cut = [&](int stages, int slices, int zero) {
        EXPECT_TRUE(cuts.contains({schedule, stages, count, slices, zero}))
            << schedule << ", " << count << " micro-batches, " << stages << " stages, " << slices
            << " slices, --zero " << zero;
      };
      for (const int stages : {2, 3, 4}) expect_cut(stages, 1, 0);
      expect_cut(2, 2, 0);
      for (const int zero : {0, 1, 2, 3}) expect_cut(2, 1, zero);
    }
}

TEST(Pairs, AreDifferentAndOfLayoutsThatFit) {
  const std::vector<Pair> pairs = all_pairs({}, "masked-lm");
  EXPECT_GT(pairs.size(), 900u);
  std::set<std::tuple<std::string, int64_t, int64_t, std::string, std::string>> seen;
  for (const Pair& pair : pairs) {
    EXPECT_TRUE(seen.insert({pair.objective, pair.layers, pair.batch_size, pair.a, pair.b}).second) << pair.a;
    for (const std::string& text : {pair.a, pair.b}) {
      const Layout layout = Layout::parse(text);
      EXPECT_LE(layout.ranks, 4) << text;
    }
  }
}

TEST(Pairs, OfOnesOwnDataAreOfItsObjectiveAlone) {
  ProofTask task;
  task.data = "some.tokens";
  for (const Pair& pair : all_pairs(task, "classification")) EXPECT_EQ(pair.objective, "classification");
}

}  // namespace
}  // namespace funicular::prove::pairs_tests
