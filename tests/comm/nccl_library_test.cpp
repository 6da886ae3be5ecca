// Claims about NCCL's library, and about the stand-in of the tests: it refuses what NCCL forbids.
#include "funicular/comm/nccl_library.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/runtime/host_stream.h"
#include "tests/comm/stand_in.h"

namespace funicular::comm::nccl {
namespace {

using device::HostStream;
using Clock = std::chrono::steady_clock;
constexpr Result kInvalidUsage = Result(5);

std::string refusal(const std::string& path) {
  try {
    load(path);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(NcclLibrary, IsLoadedFromItsPathAndItsVersionIsChecked) {
  test::use_stand_in();
  const Library library = load(test::stand_in_path());
  EXPECT_EQ(library.path, test::stand_in_path());
  EXPECT_EQ(version_text(library.version), "2.28.9");
  EXPECT_TRUE(library.on_host);
  test::use_stand_in("version=21003");
  EXPECT_NE(refusal(test::stand_in_path()).find("is NCCL 2.10.3; expected 2.14.0 or newer"),
            std::string::npos);
  EXPECT_NE(refusal("/nowhere/libnccl.so.2").find("/nowhere/libnccl.so.2"), std::string::npos);
  EXPECT_NE(refusal("libm.so.6").find("ncclGetVersion"), std::string::npos);
}

TEST(NcclLibrary, ItsVariablesAreFoundSorted) {
  const char* const environment[] = {"NCCL_NET=Socket", "HOME=/", "NCCL_DEBUG=WARN", "XNCCL_NO=1", nullptr};
  EXPECT_EQ(variables_of(environment), (std::vector<std::string>{"NCCL_DEBUG=WARN", "NCCL_NET=Socket"}));
  EXPECT_EQ(version_text(23007), "2.30.7");
}

/// Two ranks of a communicator, in threads, each with a stream.
class StandIn : public testing::Test {
 protected:
  struct Rank {
    int number = 0;
    Comm communicator = nullptr;
    HostStream stream{};
    std::vector<float> values = std::vector<float>(40'000, static_cast<float>(number + 1));
    std::vector<float> got = std::vector<float>(40'000);
    float* data() { return values.data(); }
  };

  static void SetUpTestSuite() { test::use_stand_in(); }

  /// Runs the body in each rank, and aborts the communicators afterwards.
  void run(const std::function<void(Rank&)>& body) const {
    UniqueId id;
    library_.get_unique_id(&id);
    std::vector<std::thread> threads;
    for (int number = 0; number < 2; ++number)
      threads.emplace_back([&, number] {
        Rank rank{.number = number};
        Config config;
        ASSERT_EQ(library_.comm_init(&rank.communicator, 2, id, number, &config), Result::in_progress);
        while (error_of(rank) == Result::in_progress) std::this_thread::yield();
        body(rank);
        library_.comm_abort(rank.communicator);
      });
    for (std::thread& thread : threads) thread.join();
  }

  Result error_of(const Rank& rank) const {
    Result error = Result::success;
    library_.comm_async_error(rank.communicator, &error);
    return error;
  }
  /// Whether what was queued comes to its end within a moment.
  static bool ends(Rank& rank) {
    const auto event = rank.stream.record();
    for (const auto until = Clock::now() + std::chrono::milliseconds(100); Clock::now() < until;)
      if (event->done()) return true;
    return event->done();
  }
  void expect_mismatch(const std::function<void(Rank&)>& call) const {
    run([&](Rank& rank) {
      call(rank);
      EXPECT_FALSE(ends(rank));
      while (error_of(rank) == Result::success) std::this_thread::yield();
      EXPECT_EQ(error_of(rank), kInvalidUsage);
    });
  }
  Result add(Rank& rank, size_t count, StreamHandle stream) const {
    return library_.all_reduce(rank.data(), rank.data(), count, DataType::float32, Operation::sum,
                               rank.communicator, stream);
  }
  void exchange(Rank& rank) const {
    const int other = 1 - rank.number;
    library_.send(rank.data(), rank.values.size(), DataType::float32, other, rank.communicator, &rank.stream);
    library_.receive(rank.got.data(), rank.got.size(), DataType::float32, other, rank.communicator,
                     &rank.stream);
  }

  const Library library_ = load(test::stand_in_path());
};

TEST_F(StandIn, AddsUpInChunks) {
  run([&](Rank& rank) {
    EXPECT_EQ(add(rank, rank.values.size(), &rank.stream), Result::success);
    EXPECT_TRUE(ends(rank));
    EXPECT_EQ(rank.values, std::vector<float>(rank.values.size(), 3));
  });
}

TEST_F(StandIn, RefusesCollectivesThatDifferBetweenRanks) {
  expect_mismatch([&](Rank& rank) { add(rank, size_t(10 + rank.number), &rank.stream); });
  expect_mismatch([&](Rank& rank) {
    library_.broadcast(rank.data(), rank.data(), 10, DataType::float32, rank.number, rank.communicator,
                       &rank.stream);
  });
  expect_mismatch([&](Rank& rank) {
    library_.all_reduce(rank.data(), rank.data(), 10,
                        rank.number == 0 ? DataType::float32 : DataType::float64, Operation::sum,
                        rank.communicator, &rank.stream);
  });
}

TEST_F(StandIn, RefusesARootThatIsNoRankAndASecondStream) {
  run([&](Rank& rank) {
    EXPECT_EQ(library_.broadcast(rank.data(), rank.data(), 10, DataType::float32, 2, rank.communicator,
                                 &rank.stream),
              kInvalidUsage);
  });
  HostStream second;
  run([&](Rank& rank) {
    if (rank.number != 0) return;  // so that the first operation of rank 0 stays under way
    EXPECT_EQ(add(rank, 10, &rank.stream), Result::success);
    EXPECT_EQ(add(rank, 10, &second), kInvalidUsage);
  });
}

TEST_F(StandIn, SendsBeforeReceivesBlockEachOtherUnlessTheyAreAGroup) {
  run([&](Rank& rank) {
    library_.group_start();
    exchange(rank);
    EXPECT_EQ(library_.group_end(), Result::success);
    EXPECT_TRUE(ends(rank));
    EXPECT_EQ(rank.got, std::vector<float>(rank.got.size(), static_cast<float>(2 - rank.number)));
    exchange(rank);
    EXPECT_FALSE(ends(rank));  // until the abort
  });
}

TEST_F(StandIn, RefusesAMessageOfAnotherCount) {
  run([&](Rank& rank) {
    if (rank.number == 0) {
      library_.send(rank.data(), 10, DataType::float32, 1, rank.communicator, &rank.stream);
      EXPECT_FALSE(ends(rank));
      return;
    }
    library_.receive(rank.data(), 11, DataType::float32, 0, rank.communicator, &rank.stream);
    while (error_of(rank) == Result::success) std::this_thread::yield();
    EXPECT_EQ(error_of(rank), kInvalidUsage);
  });
}

TEST_F(StandIn, StartsNothingBeforeAGroupEnds) {
  run([&](Rank& rank) {
    library_.group_start();
    EXPECT_EQ(add(rank, rank.values.size(), &rank.stream), Result::success);
    EXPECT_TRUE(ends(rank));
    EXPECT_EQ(rank.values.front(), static_cast<float>(rank.number + 1));
    library_.group_end();
    EXPECT_TRUE(ends(rank));
    EXPECT_EQ(rank.values.front(), 3);
  });
}

}  // namespace
}  // namespace funicular::comm::nccl
