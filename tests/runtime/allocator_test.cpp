// Claims about the memory of tensors once the caching allocator is in use.
#include "funicular/runtime/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/core/units.h"

namespace funicular {
namespace {

/// Skips where a sanitizer or the environment keeps the system's allocator.
class Allocator : public testing::Test {
 protected:
  void SetUp() override {
    if (!use_caching_allocator()) GTEST_SKIP() << "the caching allocator is not in use here";
  }
  static at::Tensor bytes(int64_t size) { return torch::empty({size}, torch::kByte); }
  static int64_t used() { return allocator_statistics().used; }
};

TEST_F(Allocator, CountsLargeTensorsWhileTheyLiveAndLeavesSmallOnesToMalloc) {
  const int64_t before = used();
  {
    const at::Tensor small = bytes(kSmallestCached - 1);
    EXPECT_EQ(used(), before);
    const at::Tensor large = bytes(kSmallestCached), larger = bytes(10 * kMiB);
    EXPECT_EQ(used(), before + kSmallestCached + 10 * kMiB);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data_ptr()) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data_ptr()) % 64, 0u);
  }
  EXPECT_EQ(used(), before);
}

TEST_F(Allocator, MayBeAskedForAgain) {
  const at::Tensor tensor = bytes(kMiB);
  const int64_t before = used();
  EXPECT_TRUE(use_caching_allocator());
  EXPECT_EQ(used(), before);
}

TEST_F(Allocator, LeavesTensorsOfOtherMemoryAlone) {
  std::vector<char> own(static_cast<size_t>(kMiB), 'x');
  const int64_t before = used();
  {
    const at::Tensor view = torch::from_blob(own.data(), {kMiB}, torch::kByte);
    EXPECT_EQ(view.sum().item<int64_t>(), kMiB * 'x');
    // What LibTorch itself made before, or makes without asking: freed by its own means.
    const c10::DataPtr other = c10::GetDefaultCPUAllocator()->allocate(kMiB);
    EXPECT_NE(other.get(), nullptr);
  }
  EXPECT_EQ(used(), before);
  EXPECT_EQ(own.front(), 'x');
}

TEST_F(Allocator, AllowsEmptyTensorsAndResizing) {
  at::Tensor tensor = torch::empty({0}, torch::kFloat);
  tensor.resize_({1000, 1000}).fill_(2);
  tensor.resize_({2000, 1000});
  EXPECT_EQ(tensor.narrow(0, 0, 1000).sum().item<double>(), 2e6);
  EXPECT_EQ(tensor.clone().narrow(0, 0, 1000).sum().item<double>(), 2e6);
}

TEST_F(Allocator, TakesTensorsBackFromOtherThreads) {
  const int64_t before = used();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, tensor = torch::full({kMiB}, thread, torch::kByte), thread]() mutable {
      for (int i = 0; i < 200; ++i) {
        if (tensor.max().item<int>() != thread || tensor.min().item<int>() != thread) ++wrong;
        tensor = tensor.narrow(0, 0, kMiB - i * 1000).clone();
      }
      tensor.reset();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(used(), before);
}

TEST_F(Allocator, HandsFreeMemoryBack) {
  { const at::Tensor tensor = torch::zeros({100 * kMiB}, torch::kByte); }
  EXPECT_GE(allocator_statistics().held, 100 * kMiB);
  trim_allocator();
  EXPECT_LE(allocator_statistics().held, used() + 100 * kMiB / 2);
  reset_allocator_peak();
  EXPECT_EQ(allocator_statistics().peak_held, allocator_statistics().held);
}

TEST_F(Allocator, WorksInAForkedChildEvenIfAnotherThreadHoldsItsLock) {
  // Every other of many blocks is free, and none of their pages can be handed back: trimming looks at them all and holds the lock
  // for most of the time.
  std::vector<at::Tensor> tensors(60'000);
  for (at::Tensor& tensor : tensors) tensor = bytes(kSmallestCached);
  for (size_t i = 0; i < tensors.size(); i += 2) tensors[i].reset();
  std::atomic<bool> stop{false}, began{false};
  std::thread busy([&] {
    while (!stop) trim_allocator(), began = true;
  });
  while (!began) std::this_thread::yield();
  for (int i = 0; i < 30; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);  // a lock that no one will ever open
      const at::Tensor tensor = bytes(2 * kMiB);
      static_cast<char*>(tensor.data_ptr())[kMiB] = 1;
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    if (HasFailure()) break;
  }
  stop = true;
  busy.join();
}

// A tensor that outlives main: if the allocator were gone by then, this program would crash after its last
// test.
at::Tensor outlives_main;
TEST_F(Allocator, OutlivesMain) {
  outlives_main = bytes(kMiB);
}

TEST(AllocatorDeathTest, RefusesAnUnknownWish) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("FUNICULAR_ALLOCATOR", "jemalloc", 1);
        try {
          use_caching_allocator();
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s\n", error.what());
          std::exit(3);
        }
      },
      testing::ExitedWithCode(3), "jemalloc.*expected caching, small-pages or system");
}

}  // namespace
}  // namespace funicular
