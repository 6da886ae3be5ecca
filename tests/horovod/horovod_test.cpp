// Claims about the collectives of Horovod's interface: values against sums by hand.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "ranks.h"

namespace funicular::horovod {
namespace {

using namespace horovod::test;

class Horovod : public OnRanks {};
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
        // A product is at most 6^4 = 1296: exact in these types.
        if (type == at::kLong || type == at::kInt || type == at::kFloat || type == at::kDouble)
          expect_same(allreduce(tensor, what, Product), all.prod(0), what);
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
    const horovod::CoordinatorCounters before = counters();
    const std::vector<at::Tensor> together = reduce_all(tensors);
    const horovod::CoordinatorCounters after = counters();
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

}  // namespace
}  // namespace funicular::horovod
