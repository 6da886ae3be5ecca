// Claims about the arena: blocks never overlap, memory follows the need.
#include "funicular/runtime/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tests/core/units.h"

namespace funicular {
namespace {

constexpr int64_t kAlwaysKept = 16 * kMiB;  // as documented by what trims itself: a little is always kept

size_t round_to_page(size_t bytes) {
  return (bytes + Arena::kPage - 1) / Arena::kPage * Arena::kPage;
}

/// A block whose first and last eight bytes and every page say whose it is.
struct Marked {
  char* address = nullptr;
  size_t size = 0;
  uint64_t mark = 0;

  void write() const {
    for (size_t i = 0; i + 8 <= size; i += Arena::kPage) std::memcpy(address + i, &mark, 8);
    std::memcpy(address + size - 8, &mark, 8);
  }
  bool intact() const {
    uint64_t found = 0;
    for (size_t i = 0; i + 8 <= size; i += Arena::kPage) {
      std::memcpy(&found, address + i, 8);
      if (found != mark) return false;
    }
    std::memcpy(&found, address + size - 8, 8);
    return found == mark;
  }
};

Marked take(Arena& arena, size_t size, uint64_t mark) {
  Marked block{static_cast<char*>(arena.allocate(size)), size, mark};
  EXPECT_NE(block.address, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block.address) % Arena::kPage, 0u);
  EXPECT_TRUE(arena.contains(block.address));
  EXPECT_TRUE(arena.contains(block.address + size - 1));
  block.write();
  return block;
}

/// A multiple of 8 (the size of a mark) up to 4 MiB, small ones more often.
size_t random_size(std::mt19937_64& random) {
  return 8 * (1 + random() % (size_t{1} << (1 + random() % 19)));
}

/// Bytes of [begin, begin + size) that the kernel holds in memory.
int64_t resident(const void* begin, size_t size) {
  std::vector<unsigned char> pages(size / Arena::kPage);
  EXPECT_EQ(mincore(const_cast<void*>(begin), size, pages.data()), 0);
  int64_t bytes = 0;
  for (const unsigned char page : pages) bytes += (page & 1) * static_cast<int64_t>(Arena::kPage);
  return bytes;
}

TEST(Arena, BlocksNeverOverlapWhateverTheOrder) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Arena arena({.range = size_t{1} << 30, .window = 100});
    std::mt19937_64 random(seed);
    std::vector<Marked> live;
    int64_t used = 0;
    for (uint64_t step = 0; step < 4000; ++step) {
      if (live.empty() || (random() % 2 == 0 && live.size() < 100)) {
        live.push_back(take(arena, random_size(random), step));
        used += static_cast<int64_t>(round_to_page(live.back().size));
      } else {
        std::swap(live[random() % live.size()], live.back());
        ASSERT_TRUE(live.back().intact()) << "step " << step;
        arena.free(live.back().address);
        used -= static_cast<int64_t>(round_to_page(live.back().size));
        live.pop_back();
      }
      if (random() % 64 == 0) arena.trim(static_cast<int64_t>(random() % 4) * kMiB);
      ASSERT_EQ(arena.statistics().used, used);
      ASSERT_GE(arena.statistics().held, used);
    }
    for (const Marked& block : live) {
      EXPECT_TRUE(block.intact());
      arena.free(block.address);
    }
    EXPECT_EQ(arena.statistics().used, 0);
    EXPECT_NE(arena.allocate(arena.range()), nullptr);  // everything has merged into one block again
  }
}

TEST(Arena, ServesSeveralThreadsAndTakesBlocksBackFromAnyOfThem) {
  Arena arena({.range = size_t{2} << 30, .window = 100});
  std::array<std::atomic<Marked*>, 16> mailbox{};  // blocks on their way to another thread
  std::atomic<int> damaged{0};
  const auto dispose = [&](Marked* block) {
    if (!block->intact()) ++damaged;
    arena.free(block->address);
    delete block;
  };
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread);
      for (uint64_t step = 0; step < 2000; ++step) {
        Marked* block = new Marked(take(arena, random_size(random), thread << 32 | step));
        block = mailbox[random() % mailbox.size()].exchange(block);
        if (block) dispose(block);
        if (random() % 100 == 0) arena.trim(kMiB);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (auto& slot : mailbox)
    if (Marked* block = slot.load()) dispose(block);
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(arena.statistics().used, 0);
}

TEST(Arena, FreedNeighboursMergeAtOnce) {
  Arena arena;
  std::array<void*, 4> blocks;
  for (void*& block : blocks) block = arena.allocate(kMiB);
  for (const int index : {0, 2, 1}) arena.free(blocks[index]);
  EXPECT_EQ(arena.allocate(3 * kMiB), blocks[0]);
}

TEST(Arena, PrefersTheBestFitAndThenTheLowestAddress) {
  Arena arena;
  std::array<void*, 7> blocks;  // every second one separates
  const std::array<int64_t, 7> sizes = {4, 1, 2, 1, 2, 1, 1};
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = arena.allocate(static_cast<size_t>(sizes[i] * kMiB));
  for (const int index : {4, 0, 2}) arena.free(blocks[index]);
  EXPECT_EQ(arena.allocate(2 * kMiB - 100), blocks[2]);
  EXPECT_EQ(arena.allocate(2 * kMiB), blocks[4]);
  EXPECT_EQ(arena.allocate(kMiB), blocks[0]);
}

TEST(Arena, GivesNothingWhereNothingIsLeft) {
  Arena arena({.range = 8 * Arena::kGranule});
  EXPECT_EQ(arena.allocate(0), nullptr);
  EXPECT_EQ(arena.allocate(arena.range() + 1), nullptr);
  void* const whole = arena.allocate(arena.range());
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(arena.allocate(1), nullptr);
  arena.free(whole);
  EXPECT_NE(arena.allocate(1), nullptr);
}

TEST(Arena, ContainsItsRangeAndNothingElse) {
  Arena arena({.range = 4 * Arena::kGranule});
  char* const block = static_cast<char*>(arena.allocate(arena.range()));
  EXPECT_TRUE(arena.contains(block + arena.range() - 1));
  EXPECT_FALSE(arena.contains(block + arena.range()));
  EXPECT_FALSE(arena.contains(block - 1));
  EXPECT_FALSE(arena.contains(nullptr));
}

TEST(Arena, TrimHandsMemoryBackToTheSystem) {
  for (const bool huge_pages : {true, false}) {
    Arena arena({.huge_pages = huge_pages});
    const Marked keep = take(arena, kMiB, 1), big = take(arena, 100 * kMiB, 2);
    EXPECT_GE(resident(big.address, 100 * kMiB), 100 * kMiB);
    arena.free(big.address);
    EXPECT_GE(arena.trim(40 * kMiB), 58 * kMiB);
    EXPECT_LE(arena.statistics().held, keep.size + 40 * kMiB + kMiB);
    EXPECT_LE(resident(big.address, 100 * kMiB), 41 * kMiB);
    arena.trim();
    EXPECT_EQ(arena.statistics().held, static_cast<int64_t>(Arena::kGranule));
    EXPECT_LE(resident(big.address, 100 * kMiB), kMiB);  // the rest of the granule that `keep` lies in
    EXPECT_TRUE(keep.intact());
    const Marked again = take(arena, 100 * kMiB, 3);
    EXPECT_TRUE(again.intact());
    EXPECT_EQ(arena.statistics().peak_used, 101 * kMiB);
  }
}

/// The buffers of a BERT step: each layer keeps some from forward to backward, and uses some for a moment.
class Step {
 public:
  Step(Arena& arena, int64_t tokens) : arena_(arena), row_(static_cast<size_t>(tokens) * 384 * 4) {}
  void run() {
    std::vector<std::vector<void*>> kept(6);
    for (auto& layer : kept) {
      void* const temporary = arena_.allocate(row_);
      for (const size_t width : {3, 1, 1, 4, 4, 1, 1}) layer.push_back(arena_.allocate(width * row_));
      arena_.free(temporary);
    }
    for (; !kept.empty(); kept.pop_back()) {
      void* const gradient = arena_.allocate(row_);
      for (void* block : kept.back()) {
        void* const temporary = arena_.allocate(4 * row_);
        arena_.free(block);
        arena_.free(temporary);
      }
      arena_.free(gradient);
    }
  }

 private:
  Arena& arena_;
  size_t row_;
};

TEST(Arena, HoldsLittleMoreThanRaggedBatchesNeed) {
  Arena arena;
  std::mt19937_64 random(5);
  for (int step = 0; step < 300; ++step) {
    Step(arena, static_cast<int64_t>(600 + random() % 1000)).run();
    const ArenaStatistics now = arena.statistics();
    ASSERT_LE(now.peak_held, now.peak_used * 9 / 8 + kAlwaysKept) << "step " << step;
  }
  EXPECT_EQ(arena.statistics().used, 0);
}

TEST(Arena, KeepsWhatTheNextStepNeedsAgain) {
  Arena arena;
  Step step(arena, 1500);
  step.run();
  const int64_t held = arena.statistics().held;
  EXPECT_GE(held, 150 * kMiB);
  for (int i = 0; i < 100; ++i) {
    step.run();
    ASSERT_EQ(arena.statistics().held, held);
  }
}

TEST(Arena, ShrinksWhenTheNeedShrinks) {
  Arena arena({.window = 64});
  Step(arena, 1500).run();
  EXPECT_GE(arena.statistics().held, 150 * kMiB);
  for (int i = 0; i < 20; ++i) Step(arena, 100).run();
  EXPECT_LE(arena.statistics().held, 16 * kMiB + kAlwaysKept);
  EXPECT_GE(arena.statistics().peak_held, 150 * kMiB);
  arena.reset_peak();
  EXPECT_EQ(arena.statistics().peak_held, arena.statistics().held);
  EXPECT_EQ(arena.statistics().peak_used, 0);
}

}  // namespace
}  // namespace funicular
