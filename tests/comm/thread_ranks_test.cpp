// Claims about ranks that are threads of one process: they give what processes do, and one that cannot go on holds up nobody.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "exact_collectives.h"
#include "funicular/base/error.h"
#include "funicular/comm/group.h"

namespace funicular::comm::thread_ranks_tests {
namespace {

/// Each rank's body in a thread; what each threw.
std::vector<std::string> in_threads(int ranks, const std::function<void(const Group&)>& body) {
  const std::vector<Group> groups = Group::in_threads(ranks);
  std::vector<std::string> errors(groups.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        body(groups[i]);
      } catch (const std::exception& error) {
        errors[i] = error.what();
        groups[i].leave(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_no_errors(int ranks, const std::function<void(const Group&)>& body) {
  EXPECT_EQ(in_threads(ranks, body), std::vector<std::string>(size_t(ranks)));
}

void expect_within(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ThreadRanks, CollectivesAreExactForEveryTypeReductionAndSize) {
  for (const int ranks : {1, 2, 3, 5})
    expect_no_errors(ranks, [](const Group& group) {
      test::expect_all_collectives_exact(group);
      if (group.size() > 1) test::expect_what_is_no_number_is_kept(group);
    });
}

TEST(ThreadRanks, SumsAreThoseOfATreeToTheBit) {
  constexpr int64_t kSize = 100'003;
  for (const int ranks : {2, 3, 5}) {
    const at::Tensor sum = test::tree_sum(0, ranks, kSize);
    std::vector<at::Tensor> own;
    for (int rank = 0; rank < ranks; ++rank) own.push_back(test::tree_sum(rank, rank + 1, kSize));
    expect_no_errors(ranks, [&](const Group& group) {
      const at::Tensor& mine = own[size_t(group.rank())];
      group.all_reduce(mine);
      EXPECT_TRUE(at::equal(mine, sum)) << group.size();
    });
  }
}

TEST(ThreadRanks, PiecesOfAnySizesAreReducedAndGathered) {
  expect_no_errors(3, [](const Group& group) {
    const std::vector<Shard> pieces{{0, 5}, {5, 0}, {5, 7}};
    const Shard own = pieces[size_t(group.rank())];
    const at::Tensor tensor = at::full({12}, group.rank() + 1, at::kLong);
    group.reduce_scatter(tensor, pieces);
    EXPECT_TRUE(at::equal(tensor.narrow(0, own.begin, own.size), at::full({own.size}, 6, at::kLong)));
    group.all_gather(tensor, pieces);
    EXPECT_TRUE(at::equal(tensor, at::full({12}, 6, at::kLong)));
  });
}

TEST(ThreadRanks, MessagesArriveInTheirOrderWhoeverComesFirst) {
  expect_no_errors(2, [](const Group& group) {
    const int other = 1 - group.rank();
    for (const bool early : {true, false}) {
      std::vector<Work> works;
      std::vector<at::Tensor> received;
      // Both send before they receive, or the other way round: nobody waits for the other's call.
      for (int64_t turn = 0; turn < 2; ++turn)
        for (int64_t i = 0; i < 20; ++i) {
          if ((turn == 0) == early) {
            works.push_back(group.start_send(at::full({1 + i}, 100 * group.rank() + i, at::kLong), other));
          } else {
            received.push_back(at::zeros({1 + i}, at::kLong));
            works.push_back(group.start_receive(received.back(), other));
          }
        }
      for (const Work& work : works) work.wait();
      for (int64_t i = 0; i < 20; ++i)
        EXPECT_TRUE(at::equal(received[size_t(i)], at::full({1 + i}, 100 * other + i, at::kLong))) << i;
    }
  });
}

TEST(ThreadRanks, WhatIsStartedGoesOnWhileTheRankDoesSomethingElse) {
  expect_no_errors(2, [](const Group& group) {
    const Group messages = group.subgroup({0, 1});
    const at::Tensor sum = at::ones({1000}), told = at::zeros({3}, at::kLong);
    const Work started = group.start_all_reduce(sum);
    // Rank 1 waits for its sum only once it has rank 0's message, which rank 0 sends once it has its sum.
    if (group.rank() == 0) {
      started.wait();
      messages.send(at::ones({3}, at::kLong), 1);
    } else {
      messages.receive(told, 0);
      started.wait();
      EXPECT_EQ(told.sum().item<int64_t>(), 3);
    }
    EXPECT_EQ(sum.sum().item<float>(), 2000);
    const Work another = group.start_all_reduce(sum);
    group.all_reduce(sum);  // after it
    another.wait();
    EXPECT_EQ(sum.sum().item<float>(), 8000);
  });
}

TEST(ThreadRanks, SubgroupsAreApart) {
  expect_no_errors(4, [](const Group& group) {
    const int even = group.rank() % 2;
    const Group half = group.subgroup({even + 2, even}), again = group.subgroup({even + 2, even});
    EXPECT_EQ(half.size(), 2);
    EXPECT_EQ(half.rank(), group.rank() < 2 ? 1 : 0);
    const at::Tensor value = at::full({5}, group.rank(), at::kLong);
    half.all_reduce(value);
    EXPECT_EQ(value[4].item<int64_t>(), 2 * even + 2);
    again.broadcast(value.fill_(group.rank()), 0);
    EXPECT_EQ(value[0].item<int64_t>(), even + 2);
    // Each has an order of its own.
    const at::Tensor few = at::ones({3}), many = at::ones({7});
    const bool swapped = half.rank() == 1;
    const Work first = swapped ? again.start_all_reduce(many) : half.start_all_reduce(few);
    const Work second = swapped ? half.start_all_reduce(few) : again.start_all_reduce(many);
    first.wait();
    second.wait();
    EXPECT_EQ(few.sum().item<float>() + many.sum().item<float>(), 20);
    EXPECT_EQ(group.gather_texts(std::to_string(group.rank())),
              (std::vector<std::string>{"0", "1", "2", "3"}));
    EXPECT_EQ(group.subgroup({group.rank()}).size(), 1);
  });
}

TEST(ThreadRanks, ThatLeaveEndTheOthersWaiting) {
  const auto leave_or = [](const std::function<void(const Group&)>& wait) {
    return in_threads(3, [&](const Group& group) {
      const Group inner = group.subgroup({0, 1, 2});
      if (group.rank() == 1) throw RunError("test", "no more");
      wait(inner);
    });
  };
  const at::Tensor one = at::ones({1});
  for (const auto& errors :
       {leave_or([](const Group& group) { group.barrier(); }),
        leave_or([&](const Group& group) { group.receive(at::ones({1}), 1); }),
        leave_or([&](const Group& group) { group.start_send(one, 1).wait(); }),
        leave_or([&](const Group& group) { group.start_all_reduce(at::ones({1})).wait(); })})
    for (const int rank : {0, 2}) {
      expect_within(errors[size_t(rank)], "no more");
      expect_within(errors[size_t(rank)], "rank " + std::to_string(rank) + " of 3");
    }
}

TEST(ThreadRanks, ThatCallDifferentThingsAreTold) {
  for (const std::string& error : in_threads(2, [](const Group& group) {
         group.rank() == 0 ? group.barrier() : group.all_reduce(at::ones({3}));
       })) {
    expect_within(error, "rank 0 calls barrier");
    expect_within(error, "rank 1 calls all_reduce");
  }
  for (const std::string& error : in_threads(2, [](const Group& group) {
         group.rank() == 0 ? group.send(at::ones({3}), 1) : group.receive(at::ones({2}), 0);
       }))
    expect_within(error, "different sizes");
  EXPECT_THROW(Group::in_threads(0), InputError);
}

}  // namespace
}  // namespace funicular::comm::thread_ranks_tests
