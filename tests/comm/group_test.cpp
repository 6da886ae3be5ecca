#include "funicular/comm/group.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <bit>

#include "funicular/base/error.h"
#include "tests/comm/exact_collectives.h"
#include "tests/comm/ranks.h"

namespace funicular::comm {
namespace {

using test::with_ranks;

using test::expect_all_collectives_exact;
using test::expect_what_is_no_number_is_kept;
using test::expected;
using test::tree_sum;
using test::values;
class Collectives : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  static int ranks() { return std::get<0>(GetParam()); }
  static Group join(bool fixed_order = false) {
    const Group group =
        Group::from_environment({.fixed_order = fixed_order, .shared_memory = std::get<1>(GetParam())});
    EXPECT_EQ(group.shares_memory(), std::get<1>(GetParam()));
    EXPECT_EQ(group.carrier_name(at::kCPU), group.shares_memory() ? "shared memory" : "connections");
    return group;
  }
};

TEST_P(Collectives, AreExactForEveryTypeReductionAndSize) {
  with_ranks(ranks(), [] {
    const Group group = join();
    expect_all_collectives_exact(group);
    expect_what_is_no_number_is_kept(group);
  });
}

TEST_P(Collectives, GiveAllRanksTheSameBitsInAFixedOrder) {
  with_ranks(ranks(), [] {
    const Group group = join();
    for (const int64_t size : {1000, 1000003}) {
      const at::Tensor sum = tree_sum(0, group.size(), size);
      at::manual_seed(static_cast<uint64_t>(group.rank()));
      const at::Tensor mine = at::randn({size}), again = mine.clone();
      group.all_reduce(mine);
      group.all_reduce(again);
      EXPECT_TRUE(at::equal(mine, again));
      const at::Tensor first = mine.clone();
      group.broadcast(first, 0);
      EXPECT_TRUE(at::equal(mine, first));
      if (group.shares_memory()) {
        EXPECT_TRUE(at::equal(mine, sum)) << "not the tree over the ranks";
      }
    }
  });
}

TEST_P(Collectives, InAFixedOrderSumAsATreeOverAnyConnection) {
  with_ranks(ranks(), [] {
    const Group group = join(/*fixed_order=*/true);
    for (const int64_t size : {3, 1000, 1000003}) {
      at::manual_seed(static_cast<uint64_t>(group.rank()));
      const at::Tensor mine = at::randn({size});
      group.all_reduce(mine);
      EXPECT_TRUE(at::equal(mine, tree_sum(0, group.size(), size))) << size;
    }
  });
}

TEST_P(Collectives, TakePiecesOfAnySizes) {
  with_ranks(ranks(), [] {
    const Group group = join();
    for (const int64_t scale : {1, 50000}) {
      std::vector<Shard> pieces;  // rank r has r pieces: rank 0 has none
      int64_t size = 0;
      for (int rank = 0; rank < group.size(); ++rank) {
        pieces.push_back({size, rank * scale});
        size += rank * scale;
      }
      const Shard own = pieces[size_t(group.rank())];
      const at::Tensor sum = values(0, size, at::kDouble);
      for (int rank = 1; rank < group.size(); ++rank) sum.add_(values(rank, size, at::kDouble));
      const at::Tensor tensor = values(group.rank(), size, at::kDouble);
      group.reduce_scatter(tensor, pieces);
      EXPECT_TRUE(
          at::allclose(tensor.narrow(0, own.begin, own.size), sum.narrow(0, own.begin, own.size), 1e-12));
      group.start_all_gather(tensor, pieces).wait();
      EXPECT_TRUE(at::allclose(tensor, sum, 1e-12));
    }
    EXPECT_THROW(group.all_gather(at::zeros({5}), {{0, 5}, {5, 1}}), InputError);
  });
}

TEST_P(Collectives, GatherTextsOfAnyLength) {
  with_ranks(ranks(), [] {
    const Group group = join();
    const auto text = [](int rank) {
      return std::string(static_cast<size_t>(rank * rank * 5001), char('a' + rank));
    };
    const std::vector<std::string> all = group.gather_texts(text(group.rank()));
    ASSERT_EQ(all.size(), static_cast<size_t>(group.size()));
    for (int rank = 0; rank < group.size(); ++rank) EXPECT_EQ(all[size_t(rank)], text(rank));
  });
}

TEST_P(Collectives, StartedOnesAreDoneInTheOrderOfTheCalls) {
  with_ranks(ranks(), [] {
    const Group group = join();
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(values(group.rank(), 1000 * i + 1, at::kFloat));
      works.push_back(group.start_all_reduce(tensors.back()));
    }
    const at::Tensor last = values(group.rank(), 7, at::kLong);
    group.all_reduce(last);  // comes after all of them
    for (size_t i = 0; i < works.size(); ++i) {
      EXPECT_TRUE(works[i].done());
      works[i].wait();
      EXPECT_TRUE(
          at::equal(tensors[i], expected(group.size(), tensors[i].numel(), at::kFloat, Reduction::sum)));
    }
    EXPECT_TRUE(at::equal(last, expected(group.size(), 7, at::kLong, Reduction::sum)));
  });
}

TEST_P(Collectives, WorkInSubgroupsToo) {
  with_ranks(ranks(), [] {
    const Group group = join();
    const int lone = group.size() - 1;
    std::vector<int> others;
    for (int rank = lone - 1; rank >= 0; --rank) others.push_back(rank);  // in another order
    const Group part = group.subgroup(group.rank() == lone ? std::vector<int>{lone} : others);
    if (group.rank() == lone) {
      EXPECT_EQ(part.size(), 1);
    } else {
      EXPECT_EQ(part.rank(), lone - 1 - group.rank());
      EXPECT_EQ(part.size(), lone);
    }
    expect_all_collectives_exact(part);
    // Another group of the same ranks is one of its own, whatever the first does meanwhile.
    const Group again = group.subgroup(group.rank() == lone ? std::vector<int>{lone} : others);
    for (int turn = 1; turn < 4; ++turn)
      for (const Group& one : {part, again}) {
        const at::Tensor sum = at::full({100003}, 1.0 * turn);
        one.all_reduce(sum);
        EXPECT_TRUE(at::equal(sum, at::full({100003}, 1.0 * turn * part.size())));
      }
    group.barrier();
  });
}

TEST_P(Collectives, MessagesArriveInTheirOrder) {
  with_ranks(ranks(), [] {
    const Group group = join();
    const int next = (group.rank() + 1) % group.size(),
              previous = (group.rank() + group.size() - 1) % group.size();
    for (const int64_t size : {0, 1, 70001}) {
      const at::Tensor first = values(group.rank(), size, at::kDouble), second = first + 1;
      const at::Tensor one = at::zeros({size}, at::kDouble), two = at::zeros({size}, at::kDouble);
      const auto send = [&] {
        group.send(first, next);
        group.send(second, next);
      };
      const auto receive = [&] {
        group.receive(one, previous);
        group.receive(two, previous);
      };
      group.rank() % 2 == 0 ? send() : receive();
      group.rank() % 2 == 0 ? receive() : send();
      EXPECT_TRUE(at::equal(one, values(previous, size, at::kDouble)));
      EXPECT_TRUE(at::equal(two, values(previous, size, at::kDouble) + 1));
    }
  });
}

TEST_P(Collectives, MessagesUnderWayInBothDirectionsWaitForNobodyElse) {
  with_ranks(ranks(), [] {
    const Group group = join();
    const int next = (group.rank() + 1) % group.size(),
              previous = (group.rank() + group.size() - 1) % group.size();
    // All send before anyone receives, and wait in the reverse order.
    for (const int64_t size : {0, 1, 300001}) {
      std::vector<at::Tensor> given, taken, back, returned;
      std::vector<Work> works;
      for (int i = 0; i < 4; ++i) {
        given.push_back(values(group.rank(), size, at::kBFloat16) + i);
        back.push_back(values(group.rank(), size, at::kLong) - i);
        taken.push_back(at::zeros({size}, at::kBFloat16));
        returned.push_back(at::zeros({size}, at::kLong));
        works.push_back(group.start_send(given.back(), next));
        works.push_back(group.start_send(back.back(), previous));
      }
      if (next == previous)  // one queue a direction: in the order in which they were sent
        for (int i = 0; i < 4; ++i) {
          works.push_back(group.start_receive(taken[size_t(i)], previous));
          works.push_back(group.start_receive(returned[size_t(i)], next));
        }
      else {
        for (int i = 0; i < 4; ++i) works.push_back(group.start_receive(returned[size_t(i)], next));
        for (int i = 0; i < 4; ++i) works.push_back(group.start_receive(taken[size_t(i)], previous));
      }
      for (auto work = works.rbegin(); work != works.rend(); ++work) work->wait();
      for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(at::equal(taken[size_t(i)], values(previous, size, at::kBFloat16) + i));
        EXPECT_TRUE(at::equal(returned[size_t(i)], values(next, size, at::kLong) - i));
      }
    }
    group.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Groups, Collectives, testing::Combine(testing::Values(2, 3, 4), testing::Bool()),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "Ranks" +
                                  (std::get<1>(info.param) ? "SharedMemory" : "Connections");
                         });

/// Rank 1 waits for rank 0's address and is stopped there. Where it listens and rank 0 connects, rank 0 has nothing more to
/// do for Gloo; so it is every second time or so.
TEST(Group, MayBeDroppedAsSoonAsItIsMade) {
  with_ranks(2, [] {
    ::unsetenv(launch::kSecretVariable);  // whose proof makes the ranks wait for each other
    const Group group = Group::from_environment({.shared_memory = false});
    const int other = std::stoi(group.gather_texts(std::to_string(::getpid()))[1]);
    for (int turn = 0; turn < 8; ++turn) {
      std::thread waker;
      if (group.rank() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        ::kill(other, SIGSTOP);
        waker = std::thread([other] {
          std::this_thread::sleep_for(std::chrono::milliseconds(60));
          ::kill(other, SIGCONT);
        });
      }
      EXPECT_NO_THROW(group.subgroup({0, 1})) << "turn " << turn;
      if (waker.joinable()) waker.join();
      group.barrier();
    }
  });
}

TEST(Group, OneRankAloneNeedsNoNetwork) {
  const Group group;
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.size(), 1);
  expect_all_collectives_exact(group);
  group.barrier();
  group.start_all_reduce(at::ones({3})).wait();
  EXPECT_EQ(group.subgroup({0}).size(), 1);
}

TEST(Group, TensorsThatDoNotFitAreRefused) {
  const Group group;
  EXPECT_THROW(group.all_reduce(at::ones({4, 4}).t().narrow(1, 0, 2)), InputError);
  EXPECT_THROW(group.all_reduce(at::ones({4}, at::kInt)), InputError);
  EXPECT_THROW(group.all_reduce(at::Tensor()), InputError);
  EXPECT_THROW(group.all_reduce(at::ones({4}, at::kLong), Reduction::average), InputError);
  EXPECT_THROW(group.broadcast(at::ones({4}), 1), InputError);
  EXPECT_THROW(group.reduce_scatter(at::ones({4}), at::ones({3})), InputError);
  EXPECT_THROW(group.reduce_scatter(at::ones({4}), at::ones({4}, at::kDouble)), InputError);
  EXPECT_THROW(group.send(at::ones({4}), 0), InputError);
  EXPECT_THROW(group.subgroup({0, 1}), InputError);
  EXPECT_THROW(group.subgroup({}), InputError);
}

TEST(Group, ShardsCoverEveryElementOnce) {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const int64_t size : {0, 1, 2, 3, 5, 6, 7, 13, 4099}) {
      int64_t next = 0;
      for (const Shard& shard : shards_of(size, ranks)) {
        EXPECT_EQ(shard.begin, next);
        EXPECT_LE(std::abs(shard.size - size / ranks), 1);
        next += shard.size;
      }
      EXPECT_EQ(next, size);
    }
}

}  // namespace
}  // namespace funicular::comm
