// Claims about Horovod's interface: values against sums by hand, training against one process on the joined
// batch.
#include "funicular/parallel/horovod.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "funicular/base/error.h"
#include "tests/comm/ranks.h"

namespace funicular::horovod {
namespace {

using comm::test::Endings;
using comm::test::is_rank;
using comm::test::Ranks;
using comm::test::with_ranks;

/// Runs `body` in `count` processes between init() and shutdown(); with 1 in this one.
template <class Body>
void with_horovod(int count, const InitOptions& options, const Body& body) {
  const auto run = [&] {
    init(options);
    EXPECT_EQ(size(), count);
    body();
    barrier();
    shutdown();
  };
  if (count == 1) return run();
  with_ranks(count, run);
}
template <class Body>
void with_horovod(int count, const Body& body) {
  with_horovod(count, {}, body);
}

template <class Error, class Action>
std::string failure(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no failure";
  return "";
}

void expect_in(const std::string& message, const std::vector<std::string>& phrases) {
  for (const std::string& phrase : phrases)
    EXPECT_NE(message.find(phrase), std::string::npos) << message << "\nlacks " << phrase;
}

/// Small whole numbers, another sequence on each rank.
at::Tensor values(int of_rank, std::vector<int64_t> shape, at::ScalarType type = at::kFloat) {
  const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return ((at::arange(size, at::kLong) * 7 + of_rank * 3).remainder(11) - 4).reshape(shape).to(type);
}
at::Tensor mine(std::vector<int64_t> shape, at::ScalarType type = at::kFloat) {
  return values(rank(), std::move(shape), type);
}
at::Tensor all_of(const std::vector<int64_t>& shape, at::ScalarType type = at::kDouble) {
  std::vector<at::Tensor> each;
  for (int of = 0; of < size(); ++of) each.push_back(values(of, shape, type));
  return at::stack(each);
}
at::Tensor sum_of(const std::vector<int64_t>& shape) {
  return all_of(shape).sum(0);
}

void expect_same(const at::Tensor& found, const at::Tensor& wanted, const std::string& what = "") {
  ASSERT_EQ(found.sizes().vec(), wanted.sizes().vec()) << what;
  EXPECT_TRUE(at::equal(found.to(at::kDouble), wanted.to(at::kDouble))) << what << "\n" << found << wanted;
}

class Horovod : public testing::TestWithParam<int> {
 protected:
  static int ranks() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Horovod, testing::Values(1, 2, 4));

TEST_P(Horovod, KnowsThePlaceOfEachRank) {
  EXPECT_FALSE(is_initialized());
  EXPECT_THROW(rank(), InputError);
  with_horovod(ranks(), [] {
    EXPECT_TRUE(is_initialized());
    EXPECT_EQ(local_size(), size());
    EXPECT_EQ(local_rank(), rank());
    expect_same(allgather(at::tensor({rank()})), at::arange(size()));
    init();  // again: nothing
  });
  EXPECT_FALSE(is_initialized());
  EXPECT_THROW(allreduce(at::ones(1)), InputError);
}

TEST_P(Horovod, ReducesEveryTypeByEveryOperation) {
  with_horovod(ranks(), [] {
    for (const at::ScalarType type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar})
      for (const std::vector<int64_t>& shape :
           std::vector<std::vector<int64_t>>{{}, {0}, {1}, {3, 5}, {2, 0, 2}, {1009}}) {
        const at::Tensor all = all_of(shape);
        const std::string what = fmt::format("{} {}", c10::toString(type), fmt::join(shape, ","));
        const at::Tensor before = mine(shape, type), tensor = before.clone();
        expect_same(allreduce(tensor, what, Sum), all.sum(0), what);
        expect_same(allreduce(tensor, what, Min), std::get<0>(all.min(0)), what);
        expect_same(allreduce(tensor, what, Max), std::get<0>(all.max(0)), what);
        const at::Tensor mean =
            at::isFloatingType(type)
                ? all.sum(0).to(type == at::kDouble ? type : at::kFloat).div(size()).to(type)
                : all.sum(0).div(size(), "floor");
        if (type != at::kDouble) expect_same(allreduce(tensor, what), mean, what + " average");
        expect_same(tensor, before, "allreduce changed its argument");
        EXPECT_TRUE(allreduce_(tensor, what, Sum).is_same(tensor));
        expect_same(tensor, all.sum(0), what + " in place");
      }
    const at::Tensor one_true = at::arange(size()).eq(rank());
    EXPECT_TRUE(allreduce(one_true, "or", Sum).all().item<bool>());
    EXPECT_TRUE(allreduce(one_true, "or", Max).all().item<bool>());
    EXPECT_EQ(allreduce(one_true, "and", Min).any().item<bool>(), size() == 1);
  });
}

TEST_P(Horovod, ScalesBeforeAndAfterTheSum) {
  with_horovod(ranks(), [] {
    const at::Tensor sum = sum_of({40});
    const ReduceOptions options{.prescale_factor = 0.25, .postscale_factor = 8};
    expect_same(allreduce(mine({40}), "floats", Sum, options), sum * 2);
    expect_same(allreduce_(mine({40}), "in place", Sum, options), sum * 2);
    const at::Tensor cut = at::trunc(all_of({40}) * 0.25).sum(0) * 8;
    expect_same(allreduce(mine({40}, at::kInt), "whole", Sum, options), cut);
  });
}

TEST_P(Horovod, TakesTensorsThatAreNotContiguous) {
  with_horovod(ranks(), [] {
    const at::Tensor wide = mine({6, 8}), before = wide.clone();
    allreduce_(wide.t().narrow(0, 2, 3), "columns", Sum);
    expect_same(wide.narrow(1, 2, 3), sum_of({6, 8}).narrow(1, 2, 3));
    expect_same(wide.narrow(1, 5, 3), before.narrow(1, 5, 3));
    const at::Tensor told = mine({6, 8});
    broadcast_(told.t(), size() - 1, "told");
    expect_same(told, values(size() - 1, {6, 8}));
    expect_same(allgather(mine({6, 8}).t().narrow(0, 0, 1)), all_of({6, 8}).select(2, 0));
  });
}

TEST_P(Horovod, CompressionSendsSixteenBitsAndGivesTheTypeBack) {
  with_horovod(ranks(), [] {
    const double third = 1.0 / 3;
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor tensor = at::full({10}, third, type);
      for (const auto& [compression, wire] :
           {std::pair(Compression::fp16, at::kHalf), std::pair(Compression::bf16, at::kBFloat16)}) {
        const at::Tensor reduced = allreduce(tensor, "third", Average, {.compression = compression});
        EXPECT_EQ(reduced.scalar_type(), type);
        expect_same(reduced, tensor.to(wire), c10::toString(wire));
      }
    }
    // Prescaling comes before the narrow type.
    const at::Tensor large = at::full({2}, 1e5F);
    expect_same(
        allreduce(large, "large", Average,
                  {.prescale_factor = 1.0 / 64, .postscale_factor = 64, .compression = Compression::fp16}),
        at::full({2}, 1e5F / 64).to(at::kHalf).to(at::kFloat) * 64);
    expect_same(allreduce(mine({9}, at::kLong), "whole", Sum, {.compression = Compression::fp16}),
                sum_of({9}));
  });
}

TEST_P(Horovod, NamesMeetWhateverTheOrderAndTheThread) {
  with_horovod(ranks(), [] {
    constexpr int kNames = 60, kThreads = 4;
    for (int round = 0; round < 3; ++round) {
      std::vector<int> order(kNames);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank() + 10 * round)));
      std::vector<std::thread> threads;
      for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&, thread] {
          std::vector<std::pair<int, Handle>> handles;
          for (int i = thread; i < kNames; i += kThreads) {
            const int k = order[size_t(i)];
            handles.emplace_back(
                k, allreduce_async(mine({k + 1}) + k, fmt::format("name {}", k), k % 2 ? Sum : Max));
          }
          for (const auto& [k, handle] : handles) {
            const at::Tensor all = all_of({k + 1}) + k;
            expect_same(synchronize(handle), k % 2 ? all.sum(0) : std::get<0>(all.max(0)));
            EXPECT_TRUE(poll(handle));
          }
        });
      for (std::thread& thread : threads) thread.join();
    }
  });
}

TEST_P(Horovod, SmallTensorsTravelTogetherAndKeepTheirValues) {
  with_horovod(ranks(), {.cycle_time = std::chrono::milliseconds(100)}, [] {
    constexpr int kTensors = 100;
    const auto reduce_all = [&](const std::vector<at::Tensor>& tensors) {
      std::vector<Handle> handles;
      for (size_t i = 0; i < tensors.size(); ++i)
        handles.push_back(allreduce_async(tensors[i], fmt::format("tensor {}", i), Average));
      std::vector<at::Tensor> results;
      for (const Handle& handle : handles) results.push_back(synchronize(handle));
      return results;
    };
    torch::manual_seed(rank());
    std::vector<at::Tensor> tensors, alone;
    for (int i = 0; i < kTensors; ++i) tensors.push_back(at::randn({i + 1}));
    const parallel::CoordinatorCounters before = counters();
    const std::vector<at::Tensor> together = reduce_all(tensors);
    const parallel::CoordinatorCounters after = counters();
    EXPECT_EQ(after.tensors - before.tensors, kTensors);
    EXPECT_LE(after.collectives - before.collectives, 10);
    for (int i = 0; i < kTensors; ++i) alone.push_back(allreduce(tensors[size_t(i)], "alone", Average));
    EXPECT_EQ(counters().collectives - after.collectives, kTensors);
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(at::equal(together[i], alone[i])) << "other bits when fused";
  });
}

TEST_P(Horovod, AGroupIsReducedAsOne) {
  with_horovod(ranks(), {.fusion_threshold = 0}, [] {
    const std::vector<at::Tensor> tensors{mine({3}), mine({2, 2}), mine({5}, at::kLong), mine({4}, at::kInt)};
    const int64_t before = counters().collectives;
    const std::vector<at::Tensor> results = grouped_allreduce(tensors, "group", Sum);
    EXPECT_EQ(counters().collectives - before, 2) << "one of floats, one of whole numbers";
    ASSERT_EQ(results.size(), 4u);
    for (size_t i = 0; i < results.size(); ++i) {
      expect_same(results[i], sum_of(tensors[i].sizes().vec()));
      EXPECT_EQ(results[i].scalar_type(), tensors[i].scalar_type());
    }
    const GroupHandle handle = grouped_allreduce_async_(tensors, "group", Sum);
    EXPECT_TRUE(synchronize(handle)[1].data_ptr() == tensors[1].data_ptr());
    expect_same(tensors[1], sum_of({2, 2}));
    EXPECT_THROW(grouped_allreduce({}, "nothing"), InputError);
  });
}

TEST_P(Horovod, GathersRowsOfAnyNumberAndType) {
  with_horovod(ranks(), [] {
    const auto rows_of = [](int of, int round) -> int64_t {
      return round == 3 ? (of == 0) * 5000 : (of + round) % 3;
    };
    for (int round = 0; round < 5; ++round)
      for (const at::ScalarType type : {at::kFloat, at::kByte, at::kBool, at::kInt, at::kBFloat16}) {
        std::vector<at::Tensor> each;
        for (int of = 0; of < size(); ++of) each.push_back(values(of, {rows_of(of, round), 3}, type));
        expect_same(allgather(each[size_t(rank())], c10::toString(type)), at::cat(each));
      }
    expect_same(allgather(torch::scalar_tensor(rank() + 0.5)), at::arange(size()) + 0.5);
    const Handle first = allgather_async(mine({2})), second = allgather_async(mine({1, 2}) + 1);
    expect_same(synchronize(second), all_of({1, 2}).squeeze(1) + 1);
    expect_same(synchronize(first), all_of({2}).flatten());
  });
}

TEST_P(Horovod, BroadcastsFromAnyRankInAnyType) {
  with_horovod(ranks(), [] {
    for (int root = 0; root < size(); ++root)
      for (const at::ScalarType type :
           {at::kFloat, at::kDouble, at::kByte, at::kBool, at::kShort, at::kInt, at::kLong}) {
        const at::Tensor tensor = mine({3, 7}, type), wanted = values(root, {3, 7}, type);
        expect_same(broadcast(tensor, root, "out of place"), wanted);
        expect_same(tensor, mine({3, 7}, type), "broadcast changed its argument");
        EXPECT_TRUE(broadcast_(tensor, root, "in place").is_same(tensor));
        expect_same(tensor, wanted);
      }
    EXPECT_EQ(broadcast_object(std::string(static_cast<size_t>(rank()), 'x') + "y", size() - 1),
              std::string(static_cast<size_t>(size() - 1), 'x') + "y");
    EXPECT_EQ(broadcast_object("", 0), "");
    EXPECT_THROW(broadcast(at::ones(1), size()), InputError);
  });
}

TEST_P(Horovod, ScattersTheRowsOfTheReduction) {
  with_horovod(ranks(), [] {
    for (const int64_t rows : {0, 1, 4, 7, 12})
      for (const at::ScalarType type : {at::kFloat, at::kInt}) {
        const comm::Shard own = comm::shard_of(rows, rank(), size());
        const at::Tensor wanted = sum_of({rows, 3}).narrow(0, own.begin, own.size);
        expect_same(reducescatter(mine({rows, 3}, type), fmt::format("rows {}", rows), Sum), wanted);
      }
    EXPECT_THROW(reducescatter(torch::scalar_tensor(1.0)), InputError);
  });
}

TEST_P(Horovod, RefusesWhatItCannotSend) {
  with_horovod(ranks(), [] {
    EXPECT_THROW(allreduce(at::Tensor()), InputError);
    EXPECT_THROW(allgather(at::Tensor()), InputError);
    EXPECT_THROW(broadcast(at::Tensor(), 0), InputError);
    EXPECT_THROW(allreduce(at::ones(2, at::kComplexFloat)), InputError);
    EXPECT_THROW(allreduce(at::eye(3).to_sparse()), InputError);
    EXPECT_THROW(synchronize(Handle()), InputError);
    expect_same(allreduce(mine({3}), "still works", Sum), sum_of({3}));
  });
}

class SeveralRanks : public Horovod {};
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
    const parallel::CoordinatorCounters first = counters();
    EXPECT_GT(first.messages, 0);
    barrier();  // has no name, and so needs a message
    const parallel::CoordinatorCounters before = counters();
    for (int i = 0; i < 10; ++i) step(2);
    const parallel::CoordinatorCounters after = counters();
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
                   most = at::full({5}, -99.0);
        std::vector<at::Tensor> gathered;
        for (int of = step; of < size(); ++of) {
          sum += values(of, {5});
          least = at::minimum(least, values(of, {5}) + 7);
          most = at::maximum(most, values(of, {5}) - 9);
          gathered.push_back(values(of, {of + 1, 2}));
        }
        expect_same(allreduce(mine({5}), "sum", Sum), sum);
        expect_same(allreduce(mine({5}), "average"), sum.to(at::kFloat).div(size()));
        expect_same(allreduce(mine({5}) + 7, "least", Min), least);
        expect_same(allreduce(mine({5}, at::kLong) - 9, "most", Max), most);
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
    if (rank() != 0) failure<RunError>([] { allreduce(at::ones(4), "never"); });
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

TEST(Broadcast, MakesReplicasIdentical) {
  with_horovod(3, [] {
    torch::manual_seed(rank());
    torch::nn::Sequential net(torch::nn::Conv2d(1, 2, 3), torch::nn::BatchNorm2d(2), torch::nn::Flatten(),
                              torch::nn::Linear(8, 2));
    net->forward(torch::randn({5, 1, 4, 4}));  // moves the statistics
    const auto spread = [&] {
      double sum = 0;
      std::vector<at::Tensor> all = net->parameters();
      for (const at::Tensor& buffer : net->buffers()) all.push_back(buffer);
      EXPECT_EQ(all.size(), 9u);
      for (const at::Tensor& tensor : all) {
        const at::Tensor each = allgather(tensor.detach().to(at::kDouble).unsqueeze(0));
        sum += (each - each[1]).abs().sum().item<double>();
      }
      return sum;
    };
    EXPECT_GT(spread(), 0);
    const at::Tensor weight = net[0]->as<torch::nn::Conv2d>()->weight.detach().clone();
    broadcast_parameters(*net, 1);
    EXPECT_EQ(spread(), 0);
    EXPECT_EQ(at::equal(net[0]->as<torch::nn::Conv2d>()->weight, weight), rank() == 1);
  });
}

/// One step of each kind on random gradients.
void take_steps(torch::optim::Optimizer& optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    for (at::Tensor& parameter : optimizer.param_groups()[0].params())
      parameter.mutable_grad() = torch::randn(parameter.sizes(), parameter.options());
    optimizer.step();
  }
}

template <class Optimizer, class Options>
void expect_broadcast_state(const Options& of_root, const Options& of_others) {
  with_horovod(3, [&] {
    torch::manual_seed(rank());
    torch::nn::Linear line(3, 2);
    Optimizer optimizer(line->parameters(), rank() == 2 ? of_root : of_others);
    if (rank() == 2) take_steps(optimizer, 3);
    if (rank() == 1) take_steps(optimizer, 1);  // rank 0 has no state yet
    broadcast_parameters(*line, 2);
    broadcast_optimizer_state(optimizer, 2);
    torch::manual_seed(9);
    take_steps(optimizer, 2);
    const at::Tensor each = allgather(line->weight.detach().unsqueeze(0));
    EXPECT_TRUE(at::equal(each[0], each[2]));
    EXPECT_TRUE(at::equal(each[1], each[2]));
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  });
}

TEST(Broadcast, GivesSgdsMomentumToAll) {
  expect_broadcast_state<torch::optim::SGD>(torch::optim::SGDOptions(0.25).momentum(0.9),
                                            torch::optim::SGDOptions(1).momentum(0.1));
}
TEST(Broadcast, GivesAdamsMomentsToAll) {
  expect_broadcast_state<torch::optim::Adam>(torch::optim::AdamOptions(0.25).amsgrad(true),
                                             torch::optim::AdamOptions(1));
}
TEST(Broadcast, GivesAdamWsMomentsToAll) {
  expect_broadcast_state<torch::optim::AdamW>(torch::optim::AdamWOptions(0.25).weight_decay(0.1),
                                              torch::optim::AdamWOptions(1));
}

TEST(Broadcast, RefusesAnOptimizerThatDoesNotFitOrCannotBeSaved) {
  struct Unsaved final : torch::optim::Optimizer {
    explicit Unsaved(const std::vector<at::Tensor>& parameters)
        : Optimizer(parameters, std::make_unique<torch::optim::SGDOptions>(1)) {}
    at::Tensor step(LossClosure) override { return {}; }
  };
  with_horovod(2, [] {
    torch::nn::Linear line(3, 2);
    std::vector<at::Tensor> parameters = line->parameters();
    if (rank() == 1) parameters.pop_back();
    torch::optim::SGD optimizer(parameters, 0.1);
    if (rank() == 1) {
      expect_in(failure<InputError>([&] { broadcast_optimizer_state(optimizer, 0); }),
                {"rank 1", "does not fit"});
    } else {
      broadcast_optimizer_state(optimizer, 0);
    }
    Unsaved unsaved(line->parameters());
    expect_in(failure<InputError>([&] { broadcast_optimizer_state(unsaved, 0); }), {"save()"});
  });
}

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{6, 8}, second{8, 3}, sometimes{6, 3};
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("sometimes", sometimes);
    to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, bool uses_all = true) {
    const at::Tensor out = second(torch::tanh(first(x)));
    return uses_all ? out + sometimes(x) : out;
  }
};
TORCH_MODULE(Net);

struct Data {
  at::Tensor x, y;
  Data part(int index, int parts) const {
    return {x.chunk(parts)[size_t(index)], y.chunk(parts)[size_t(index)]};
  }
};
Data data_of(int step, int64_t rows) {
  torch::manual_seed(100 + step);
  return {torch::randn({rows, 6}, torch::kDouble), torch::randn({rows, 3}, torch::kDouble)};
}
at::Tensor loss_of(Net& net, const Data& data, bool uses_all = true) {
  return torch::mse_loss(net->forward(data.x, uses_all), data.y);
}

/// The same start on all ranks and in the single process.
Net make_net() {
  torch::manual_seed(5);
  return {};
}

void expect_near(const Net& found, const Net& wanted, double bound = 1e-12) {
  for (const auto& [name, parameter] : wanted->named_parameters().pairs())
    EXPECT_LE((found->named_parameters()[name] - parameter).abs().max().item<double>(), bound) << name;
}

enum class Kind { sgd, adam, adamw };
std::unique_ptr<torch::optim::Optimizer> make_optimizer(Kind kind, const Net& net) {
  const std::vector<at::Tensor> parameters = net->parameters();
  if (kind == Kind::adam)
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
  if (kind == Kind::adamw)
    return std::make_unique<torch::optim::AdamW>(parameters,
                                                 torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
}

class Training : public testing::TestWithParam<int> {
 protected:
  static int ranks() { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Training, testing::Values(1, 2, 3));

TEST_P(Training, EqualsOneProcessOnTheJoinedBatch) {
  with_horovod(ranks(), [] {
    const std::vector<DistributedOptimizerOptions> variants{
        {}, {.op = Sum}, {.gradient_predivide_factor = 2.0 * size()}, {.backward_passes_per_step = 2}};
    for (const Kind kind : {Kind::sgd, Kind::adam, Kind::adamw})
      for (const DistributedOptimizerOptions& options : variants) {
        Net alone = make_net(), net = make_net();
        if (rank() != 0)
          for (at::Tensor& parameter : net->parameters()) parameter.detach().add_(rank());
        broadcast_parameters(*net, 0);
        const auto single = make_optimizer(kind, alone), own = make_optimizer(kind, net);
        DistributedOptimizer optimizer(*own, net->named_parameters(), options);
        const int passes = options.backward_passes_per_step;
        for (int step = 0; step < 6; ++step) {
          const Data data = data_of(step, 12 * size());
          single->zero_grad();
          (loss_of(alone, data) * (options.op == Sum ? size() : passes)).backward();
          single->step();
          optimizer.zero_grad();
          for (int pass = 0; pass < passes; ++pass)
            loss_of(net, data.part(rank(), size()).part(pass, passes)).backward();
          optimizer.step();
        }
        expect_near(net, alone);
      }
  });
}

/// Its backward pass does not end before a reduction has.
struct WaitsForAReduction : torch::autograd::Function<WaitsForAReduction> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (counters().tensors == 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_GT(counters().tensors, 0) << "nothing was reduced while the backward pass went on";
    return gradients;
  }
};

TEST(BackwardPass, GoesOnWhileGradientsAreReduced) {
  with_horovod(2, [] {
    const at::Tensor early = at::ones({4}).requires_grad_(), late = at::ones({4}).requires_grad_();
    torch::optim::SGD sgd({early, late}, 0.5);
    DistributedOptimizer optimizer(sgd);
    (WaitsForAReduction::apply(early * 2) * late).sum().backward();
    optimizer.step();
    expect_same(early.detach(), at::zeros({4}));
    expect_same(late.detach(), at::zeros({4}));
  });
}

TEST_P(Training, AParameterWithoutGradientOnSomeRanksGetsThatOfTheOthers) {
  with_horovod(ranks(), [] {
    Net alone = make_net(), net = make_net();
    const auto single = make_optimizer(Kind::sgd, alone), own = make_optimizer(Kind::sgd, net);
    DistributedOptimizer optimizer(*own, net->named_parameters());
    for (int step = 0; step < 4; ++step) {
      const Data data = data_of(step, 5 * size());
      single->zero_grad();
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (int of = 0; of < size(); ++of)
        loss = loss + loss_of(alone, data.part(of, size()), (of + step) % 2 == 0) / size();
      loss.backward();
      single->step();
      optimizer.zero_grad();
      loss_of(net, data.part(rank(), size()), (rank() + step) % 2 == 0).backward();
      optimizer.step();
    }
    // Alone, sometimes.weight has no gradient in odd steps and keeps its momentum; with zeros it moves on.
    if (size() > 1) expect_near(net, alone);
  });
}

TEST_P(Training, GradientsCanBeClippedBetweenReductionAndStep) {
  with_horovod(ranks(), [] {
    for (const bool skips : {true, false}) {
      Net alone = make_net(), net = make_net();
      const auto single = make_optimizer(Kind::sgd, alone), own = make_optimizer(Kind::sgd, net);
      DistributedOptimizer optimizer(*own, net->named_parameters(), {.op = Sum});
      for (int step = 0; step < 4; ++step) {
        const Data data = data_of(step, 4 * size());
        single->zero_grad();
        (loss_of(alone, data) * size()).backward();
        torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.05);
        single->step();
        optimizer.zero_grad();
        loss_of(net, data.part(rank(), size())).backward();
        optimizer.synchronize();
        torch::nn::utils::clip_grad_norm_(net->parameters(), 0.05);
        std::shared_ptr<void> skip;
        if (skips) skip = optimizer.skip_synchronize();
        optimizer.step();
      }
      expect_near(net, alone);
    }
  });
}

TEST_P(Training, AClosuresGradientsAreReducedEachTime) {
  with_horovod(ranks(), [] {
    Net alone = make_net(), net = make_net();
    torch::optim::LBFGS single(alone->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4)),
        own(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));
    DistributedOptimizer optimizer(own, net->named_parameters());
    const Data data = data_of(0, 6 * size());
    for (int step = 0; step < 2; ++step) {
      single.step([&] {
        single.zero_grad();
        at::Tensor loss = loss_of(alone, data);
        loss.backward();
        return loss;
      });
      optimizer.step([&] {
        optimizer.zero_grad();
        at::Tensor loss = loss_of(net, data.part(rank(), size()));
        loss.backward();
        return allreduce(loss.detach(), "loss");
      });
    }
    expect_near(net, alone, 1e-10);
  });
}

TEST_P(Training, SixteenBitGradientsTrainNearlyTheSame) {
  with_horovod(ranks(), [] {
    Net alone = make_net(), net = make_net();
    const auto single = make_optimizer(Kind::sgd, alone), own = make_optimizer(Kind::sgd, net);
    DistributedOptimizer optimizer(*own, net->named_parameters(), {.compression = Compression::fp16});
    for (int step = 0; step < 5; ++step) {
      const Data data = data_of(step, 4 * size());
      single->zero_grad();
      loss_of(alone, data).backward();
      single->step();
      optimizer.zero_grad();
      loss_of(net, data.part(rank(), size())).backward();
      optimizer.step();
    }
    expect_near(net, alone, 1e-3);
    if (size() > 1) {
      EXPECT_GT((net->first->weight - alone->first->weight).abs().max().item<double>(), 1e-9) << "not narrow";
    }
    const at::Tensor each = allgather(net->first->weight.detach().unsqueeze(0));
    for (int of = 0; of < size(); ++of) EXPECT_TRUE(at::equal(each[of], each[0])) << "the replicas differ";
  });
}

TEST_P(Training, RanksWithFewerBatchesJoin) {
  with_horovod(ranks(), [] {
    Net alone = make_net(), net = make_net();
    const auto single = make_optimizer(Kind::sgd, alone), own = make_optimizer(Kind::sgd, net);
    DistributedOptimizer optimizer(*own, net->named_parameters());
    const auto batches_of = [](int of) { return 2 + of; };
    for (int step = 0; step < batches_of(size() - 1); ++step) {
      const Data data = data_of(step, 4 * size());
      single->zero_grad();
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (int of = 0; of < size(); ++of)
        if (step < batches_of(of)) loss = loss + loss_of(alone, data.part(of, size())) / size();
      loss.backward();
      single->step();
      if (step >= batches_of(rank())) continue;
      optimizer.zero_grad();
      loss_of(net, data.part(rank(), size())).backward();
      optimizer.step();
    }
    EXPECT_EQ(join(), size() - 1);
    broadcast_parameters(*net, size() - 1);
    expect_near(net, alone);
  });
}

TEST_P(Training, MistakesAreNamed) {
  with_horovod(ranks(), [] {
    Net net = make_net();
    const auto own = make_optimizer(Kind::sgd, net);
    const auto names = net->named_parameters();
    const Data data = data_of(0, 4);
    {
      DistributedOptimizer optimizer(*own, names);
      loss_of(net, data).backward();
      expect_in(failure<InputError>([&] { optimizer.zero_grad(); }), {"zero_grad()", "before step()"});
      expect_in(failure<InputError>([&] { optimizer.set_backward_passes_per_step(2); }), {"between"});
      expect_in(failure<InputError>([&] { loss_of(net, data).backward(); }),
                {"allreduce.", "backward_passes_per_step"});
      optimizer.synchronize();
      optimizer.zero_grad();
      expect_in(failure<InputError>([&] { DistributedOptimizer(*own, names); }), {"hook"});
      optimizer.set_backward_passes_per_step(2);
      loss_of(net, data).backward();
      loss_of(net, data).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    loss_of(net, data).backward();  // the hooks are gone
    loss_of(net, data).backward();
    NamedTensors some;
    some.insert("first.weight", net->first->weight);
    expect_in(failure<InputError>([&] { DistributedOptimizer(*own, some); }), {"not among the named"});
    EXPECT_THROW(DistributedOptimizer(*own, names, {.op = Max}), InputError);
    EXPECT_THROW(DistributedOptimizer(*own, names, {.backward_passes_per_step = 0}), InputError);
    EXPECT_THROW(DistributedOptimizer(*own, names, {.op = Sum, .gradient_predivide_factor = 2}), InputError);
    EXPECT_NO_THROW(DistributedOptimizer(*own, names));
  });
}

TEST_P(Training, SparseGradientsBecomeDenseOnRequest) {
  with_horovod(ranks(), [] {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    torch::optim::SGD sgd(table->parameters(), 1.0);
    {
      DistributedOptimizer optimizer(sgd);
      expect_in(failure<InputError>([&] { table(at::zeros({1}, at::kLong)).sum().backward(); }),
                {"sparse_as_dense"});
    }
    torch::NoGradGuard no_gradient;
    table->weight.zero_();
    table->weight.mutable_grad() = at::Tensor();
    DistributedOptimizer optimizer(sgd, NamedTensors(), {.op = Sum, .sparse_as_dense = true});
    {
      const at::AutoGradMode gradient(true);
      table(at::full({1}, rank(), at::kLong)).sum().backward();
    }
    optimizer.step();
    expect_same(table->weight.detach(),
                at::arange(5).lt(size()).to(at::kFloat).neg().unsqueeze(1).expand({5, 2}));
  });
}

}  // namespace
}  // namespace funicular::horovod
