// Claims about the loader's queue. Free of LibTorch, so that ThreadSanitizer sees all of it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>

#include "funicular/train/prefetch.h"

namespace funicular::train {
namespace {

TEST(Prefetcher, HandsItemsOutInOrderForAnyNumberOfThreads) {
  for (const int threads : {0, 1, 2, 7}) {
    Prefetcher<std::string> queue(5, 300, threads, 3, [](int64_t i) { return std::to_string(i); });
    for (int64_t i = 5; i < 300; ++i) ASSERT_EQ(queue.next(), std::to_string(i)) << threads << " threads";
  }
}

TEST(Prefetcher, NeverMakesMoreThanItMay) {
  std::atomic<int64_t> made{0}, taken{0}, most{0};
  Prefetcher<int64_t> queue(0, 200, 4, 3, [&](int64_t i) {
    const int64_t ahead = ++made - taken;
    int64_t seen = most;
    while (ahead > seen && !most.compare_exchange_weak(seen, ahead)) {
    }
    return i;
  });
  for (int64_t i = 0; i < 200; ++i) {
    ++taken;  // before next(), which makes room
    ASSERT_EQ(queue.next(), i);
  }
  EXPECT_LE(most, 3);
}

TEST(Prefetcher, ThrowsTheErrorOfAnItemWhenItIsTaken) {
  for (const int threads : {0, 2}) {
    Prefetcher<int> queue(0, 10, threads, 4, [](int64_t i) -> int {
      if (i == 3) throw std::runtime_error("item 3");
      return static_cast<int>(i);
    });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(queue.next(), i);
    EXPECT_THROW(queue.next(), std::runtime_error);
  }
}

TEST(Prefetcher, CanBeDroppedWithItemsUnderWay) {
  std::atomic<int> running{0};
  for (int round = 0; round < 20; ++round) {
    Prefetcher<int> queue(0, 1000, 3, 5, [&](int64_t i) {
      ++running;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      --running;
      return static_cast<int>(i);
    });
    queue.next();
  }
  EXPECT_EQ(running, 0);
}

}  // namespace
}  // namespace funicular::train
