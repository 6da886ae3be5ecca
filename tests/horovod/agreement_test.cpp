// Claims about how ranks agree on what they ask Horovod's interface for: in any order, too late, or never.
#include <fmt/format.h>

#include "ranks.h"

namespace funicular::horovod {
namespace {

using namespace horovod::test;
using comm::test::Endings;
using comm::test::is_rank;
using comm::test::Ranks;

class SeveralRanks : public OnRanks {};
INSTANTIATE_TEST_SUITE_P(Ranks, SeveralRanks, testing::Values(2, 3));

TEST_P(SeveralRanks, DifferentRequestsUnderOneNameFailOnAllRanks) {
  with_horovod(ranks(), [] {
    const bool last = rank() == size() - 1;
    const std::string other = fmt::format("rank {}: ", size() - 1);
    const auto expect_refused = [&](const char* name, const auto& request, const std::string& of_rank_0,
                                    const std::string& of_last) {
      expect_in(failure<InputError>(request), {name, "rank 0: " + of_rank_0, other + of_last});
    };
    for (int round = 0; round < 2; ++round) {
      expect_refused(
          "shape", [&] { allreduce(at::ones(last ? 3 : 4), "shape", Sum); }, "allreduce of Float [4], sum",
          "allreduce of Float [3], sum");
      expect_refused(
          "type", [&] { allreduce(at::ones(4, last ? at::kInt : at::kFloat), "type"); },
          "allreduce of Float [4], average", "allreduce of Int [4], average");
      expect_refused(
          "op", [&] { allreduce(at::ones(4), "op", last ? Max : Min); }, "allreduce of Float [4], minimum",
          "allreduce of Float [4], maximum");
      expect_refused(
          "root", [&] { broadcast(at::ones(4), last ? 1 : 0, "root"); }, "broadcast of Float [4] from rank 0",
          "broadcast of Float [4] from rank 1");
      expect_refused(
          "kind", [&] { last ? allreduce(at::ones(4), "kind") : allgather(at::ones(4), "kind"); },
          "allgather of Float [4]", "allreduce of Float [4], average");
      expect_refused(
          "columns",
          [&] {
            allgather(at::ones({rank(), last ? 3 : 2}), "columns");
          },
          "allgather of Float [0, 2]", fmt::format("allgather of Float [{}, 3]", size() - 1));
      expect_refused(
          "scale", [&] { allreduce(at::ones(4), "scale", Sum, {.prescale_factor = last ? 2.0 : 1.0}); },
          "allreduce of Float [4], sum", "allreduce of Float [4], sum, scaled by 2 and 1");
      expect_refused(
          "sent",
          [&] {
            allreduce(at::ones(4), "sent", Sum,
                      {.compression = last ? Compression::bf16 : Compression::fp16});
          },
          "allreduce of Float [4], sum, sent as fp16", "allreduce of Float [4], sum, sent as bf16");
    }
    expect_same(allreduce(mine({4}), "shape", Sum), sum_of({4}));
    // Remembered now: one rank that asks for something else makes the others ask again.
    expect_same(allreduce(mine({4}), "shape", Sum), sum_of({4}));
    expect_refused(
        "shape", [&] { allreduce(at::ones(last ? 3 : 4), "shape", Sum); }, "allreduce of Float [4], sum",
        "allreduce of Float [3], sum");
    expect_same(allreduce(mine({4}), "shape", Sum), sum_of({4}));
  });
}

TEST_P(SeveralRanks, ANameInFlightIsRefusedAndCanBeUsedAgainAfterwards) {
  with_horovod(ranks(), [] {
    Handle handle;
    if (rank() == 0) {
      handle = allreduce_async(mine({4}), "busy", Sum);
      expect_in(failure<InputError>([] { allreduce_async(at::ones(4), "busy"); }), {"busy", "already"});
    }
    barrier();
    if (rank() != 0) handle = allreduce_async(mine({4}), "busy", Sum);
    expect_same(synchronize(handle), sum_of({4}));
    for (int i = 0; i < 20; ++i) expect_same(allreduce(mine({4}), "busy", Sum), sum_of({4}));
  });
}

TEST_P(SeveralRanks, KnownNamesNeedNoMessages) {
  with_horovod(ranks(), [] {
    const auto step = [](int64_t columns) {
      std::vector<Handle> handles;
      for (int i = 0; i < 30; ++i)
        handles.push_back(allreduce_async(mine({i, columns}), fmt::format("gradient {}", i), Sum));
      const at::Tensor rows = mine({rank() + 1, 2});
      handles.push_back(broadcast_async(rows.narrow(0, 0, 1), 0, "broadcast"));
      handles.push_back(allgather_async(rows, "gather"));
      for (int i = 0; i < 30; ++i) expect_same(synchronize(handles[size_t(i)]), sum_of({i, columns}));
      expect_same(synchronize(handles[30]), values(0, {1, 2}));
      EXPECT_EQ(synchronize(handles[31]).size(0), size() * (size() + 1) / 2);
    };
    step(2);
    const horovod::CoordinatorCounters first = counters();
    EXPECT_GT(first.messages, 0);
    barrier();  // has no name, and so needs a message
    const horovod::CoordinatorCounters before = counters();
    for (int i = 0; i < 10; ++i) step(2);
    const horovod::CoordinatorCounters after = counters();
    step(2);  // before this no rank goes on, and sends messages again
    EXPECT_EQ(after.messages, before.messages);
    EXPECT_EQ(after.message_rounds, before.message_rounds);
    EXPECT_EQ(after.from_cache - before.from_cache, 10 * 32);
    barrier();
    step(3);  // other shapes under the same names
    EXPECT_EQ(counters().messages - after.messages, 1 + 30);
  });
}

TEST_P(SeveralRanks, MoreNamesThanAreRememberedAreStillReduced) {
  with_horovod(ranks(), {.cache_capacity = 3}, [] {
    for (int round = 0; round < 4; ++round) {
      std::vector<std::pair<int, Handle>> handles;
      for (int i = 0; i < 7; ++i) {
        const int k = (i + rank()) % 7;
        handles.emplace_back(k, allreduce_async(mine({k}), fmt::format("{}", k), Sum));
      }
      for (const auto& [k, handle] : handles) expect_same(synchronize(handle), sum_of({k}));
    }
  });
}

TEST_P(SeveralRanks, WhatOneRankForgetsToAskForIsWarnedAboutAndThenDone) {
  with_horovod(ranks(), {.stall_check_time = std::chrono::milliseconds(200)}, [] {
    for (int round = 0; round < 2; ++round) {  // the second time the name is remembered
      if (rank() == size() - 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(700));
      } else if (rank() == 0) {
        testing::internal::CaptureStderr();
      }
      expect_same(allreduce(mine({4}), "late", Sum), sum_of({4}));
      if (rank() != 0) continue;
      std::string asked = "0";
      for (int of = 1; of < size() - 1; ++of) asked += fmt::format(", {}", of);
      expect_in(testing::internal::GetCapturedStderr(),
                {fmt::format("late: asked for by rank {}, not by rank {}, for 0.", asked, size() - 1)});
      EXPECT_GE(counters().stalls, round + 1);
    }
  });
}

TEST_P(SeveralRanks, WhatOneRankNeverAsksForFailsOnAllWhenTheTimeIsOver) {
  with_ranks(ranks(), [] {
    init({.stall_check_time = std::chrono::milliseconds(100),
          .stall_shutdown_time = std::chrono::milliseconds(300)});
    const std::string reason = "forgotten: asked for by rank";
    const std::string missing = fmt::format("not by rank {}", size() - 1);
    if (rank() == size() - 1) {
      std::string message;
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      while (message.empty()) {
        try {
          allreduce_async(at::ones(1));
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        } catch (const RunError& error) {
          message = error.what();
        }
      }
      expect_in(message, {reason, missing});
    } else {
      expect_in(failure<RunError>([] { allreduce(at::ones(4), "forgotten"); }), {reason, missing});
    }
    shutdown();
  });
}

TEST_P(SeveralRanks, ARankThatHasJoinedAddsNothing) {
  with_horovod(ranks(), [] {
    for (int epoch = 0; epoch < 3; ++epoch) {  // in the later ones the names are remembered
      // Rank r has r + 1 batches: in step s the ranks from s on take part.
      for (int step = 0; step <= rank(); ++step) {
        at::Tensor sum = at::zeros({5}, at::kDouble), least = at::full({5}, 99.0),
                   most = at::full({5}, -99.0), product = at::ones({5}, at::kDouble);
        std::vector<at::Tensor> gathered;
        for (int of = step; of < size(); ++of) {
          sum += values(of, {5});
          least = at::minimum(least, values(of, {5}) + 7);
          most = at::maximum(most, values(of, {5}) - 9);
          product *= values(of, {5});
          gathered.push_back(values(of, {of + 1, 2}));
        }
        expect_same(allreduce(mine({5}), "sum", Sum), sum);
        expect_same(allreduce(mine({5}), "average"), sum.to(at::kFloat).div(size()));
        expect_same(allreduce(mine({5}) + 7, "least", Min), least);
        expect_same(allreduce(mine({5}, at::kLong) - 9, "most", Max), most);
        expect_same(allreduce(mine({5}), "floating product", Product), product);
        expect_same(allreduce(mine({5}, at::kLong), "whole product", Product), product);
        expect_same(allgather(mine({rank() + 1, 2}), "rows"), at::cat(gathered));
        const at::Tensor wanted =
            sum.narrow(0, comm::shard_of(5, rank(), size()).begin, comm::shard_of(5, rank(), size()).size);
        expect_same(reducescatter(mine({5}), "scatter", Sum), wanted);
        expect_same(broadcast(mine({5}), size() - 1, "tell"), values(size() - 1, {5}));
        barrier();
      }
      EXPECT_EQ(join(), size() - 1);
    }
  });
}

TEST_P(SeveralRanks, ARankThatHasJoinedCannotTell) {
  with_horovod(ranks(), [] {
    if (rank() != 0)
      expect_in(failure<InputError>([] {
                  // Rank 0 joins meanwhile: until then the request waits.
                  broadcast(at::ones(2), 0, "tell");
                }),
                {"tell", "broadcast of Float [2] from rank 0", "has joined"});
    const int last = join();
    EXPECT_GT(last, 0);
    EXPECT_LT(last, size());
  });
}

TEST_P(SeveralRanks, WhatWasAskedForBeforeJoiningIsDone) {
  with_horovod(ranks(), [] {
    const Handle before = allreduce_async(mine({4}), "before", Sum);
    join();
    EXPECT_TRUE(poll(before));
    expect_same(synchronize(before), sum_of({4}));
  });
}

TEST_P(SeveralRanks, ShuttingDownFailsWhatOthersWaitFor) {
  with_ranks(ranks(), [] {
    init();
    allreduce(mine({3}), "once");
    if (rank() != 0) {
      expect_in(failure<RunError>([] { allreduce(at::ones(4), "never"); }), {"shutdown()"});
      expect_in(failure<RunError>([] { allreduce(at::ones(4), "after"); }), {"shutdown()"});
    }
    shutdown();
  });
}

TEST_P(SeveralRanks, EndOfMainShutsDown) {
  with_ranks(ranks(), [] {
    init();
    expect_same(allreduce(mine({3}), "once", Sum), sum_of({3}));
    if (rank() != 0) expect_in(failure<RunError>([] { allreduce(at::ones(4), "never"); }), {"shutdown()"});
    std::exit(HasFailure() ? 1 : 0);  // in a fork nothing else would end main
  });
}

TEST_P(SeveralRanks, ADeadRankIsNamedInWhatOthersWaitFor) {
  if (!is_rank()) {
    Endings wanted(static_cast<size_t>(ranks()), 0);
    wanted.back() = -SIGKILL;
    EXPECT_EQ(Ranks(ranks()).end(), wanted);
    return;
  }
  init();
  allreduce(mine({3}), "once");
  if (rank() == size() - 1) ::raise(SIGKILL);
  expect_in(failure<RunError>([] { allreduce(at::ones(4), "never"); }),
            {fmt::format("rank {} (process", size() - 1), "has ended"});
}

TEST_P(SeveralRanks, InitAfterShutdownStartsAnew) {
  with_ranks(ranks(), [] {
    for (int round = 0; round < 3; ++round) {
      init();
      expect_same(allreduce(mine({3}), "", Sum), sum_of({3}));
      barrier();
      shutdown();
    }
  });
}

TEST(HorovodOptions, ComeFromTheEnvironmentAndRefuseWhatIsNoNumber) {
  for (const char* name : {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY",
                           "HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"}) {
    for (const char* wrong : {"many", "-1", "1e99", "nan"}) {
      ::setenv(name, wrong, 1);
      expect_in(failure<InputError>([] { init(); }), {name, wrong});
      EXPECT_FALSE(is_initialized());
    }
    ::setenv(name, "3.5", 1);
    init();
    shutdown();
    ::unsetenv(name);
  }
  EXPECT_THROW(init({.fusion_threshold = -1}), InputError);
}

TEST(HorovodOptions, OfRankZeroCountForAll) {
  with_ranks(2, [] {
    const bool first = std::string(std::getenv("RANK")) == "0";
    ::setenv("HOROVOD_CACHE_CAPACITY", first ? "0" : "100", 1);
    ::setenv("HOROVOD_FUSION_THRESHOLD", first ? "1000" : "100000000", 1);
    init();
    for (int i = 0; i < 3; ++i) {
      const Handle a = allreduce_async(mine({200}), "a", Sum), b = allreduce_async(mine({200}), "b", Sum);
      expect_same(synchronize(a), sum_of({200}));
      expect_same(synchronize(b), sum_of({200}));
    }
    EXPECT_EQ(counters().from_cache, 0);
    EXPECT_EQ(counters().collectives, 6);
    barrier();
    shutdown();
  });
}

}  // namespace
}  // namespace funicular::horovod
