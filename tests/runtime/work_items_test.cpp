#include "funicular/runtime/work_items.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace funicular {
namespace {

TEST(Items, EachIsTakenOnce) {
  for (const int64_t count : {0, 1, 2, 3, 1000})
    for (const int64_t workers : {1, 2, 7}) {
      std::vector<std::atomic<int>> taken(static_cast<size_t>(count));
      for_each_item(count, workers, [&](int64_t item, int64_t) { ++taken[static_cast<size_t>(item)]; });
      for (const auto& times : taken) EXPECT_EQ(times, 1) << count << " items, " << workers << " workers";
    }
}

TEST(Items, AWorkerIsOneThreadAtATime) {
  constexpr int64_t kWorkers = 2;
  std::vector<std::atomic<int>> busy(kWorkers);
  std::atomic<int> clashes{0};
  for_each_item(2000, kWorkers, [&](int64_t, int64_t worker) {
    std::atomic<int>& mine = busy[static_cast<size_t>(worker)];
    if (mine++ != 0) ++clashes;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
    while (std::chrono::steady_clock::now() < end) continue;  // long enough to meet another
    --mine;
  });
  EXPECT_EQ(clashes, 0);
}

TEST(Items, WithinAParallelRegionEachIsTakenOnceToo) {
  std::vector<std::atomic<int>> taken(100);
  at::parallel_for(0, 2, 1, [&](int64_t first, int64_t last) {
    for (int64_t half = first; half < last; ++half)
      for_each_item(50, [&](int64_t item) { ++taken[static_cast<size_t>(50 * half + item)]; });
  });
  for (const auto& times : taken) EXPECT_EQ(times, 1);
}

TEST(Items, AnErrorReachesTheCaller) {
  EXPECT_THROW(for_each_item(100,
                             [](int64_t item) {
                               if (item == 57) throw std::runtime_error("57");
                             }),
               std::runtime_error);
}

#ifdef __SANITIZE_THREAD__
void add_up_in_all_threads() {
  std::vector<int64_t> sum(1);
  for (int round = 0; round < 100; ++round)
    parallel_loop(0, 1000, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) sum[0] += i;
    });
  std::exit(sum[0] == 0 ? 1 : 0);
}

TEST(ParallelLoop, IsWatchedForRaces) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<int64_t> values(1000);
  for (int round = 0; round < 20; ++round) {
    for (int64_t& value : values) value = round;
    parallel_loop(0, 1000, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) values[static_cast<size_t>(i)] += i;
    });
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 1000 * round + 499500);
  }
  EXPECT_EXIT(add_up_in_all_threads(), testing::ExitedWithCode(66), "data race");
}
#endif

}  // namespace
}  // namespace funicular
