// Claims about the bytes that a rank hands to collectives and messages.
#include "funicular/comm/traffic.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>
#include <vector>

#include "funicular/comm/group.h"
#include "ranks.h"

namespace funicular::comm::traffic_tests {
namespace {

/// One call of each, of 100 floats, as rank `group.rank()` of three.
void exchange(const Group& group) {
  const at::Tensor tensor = torch::ones({100}), part = torch::empty({group.shard(100).size});
  group.all_reduce(tensor);
  group.start_all_reduce(tensor).wait();
  group.reduce_scatter(tensor, part);
  group.reduce_scatter(tensor, shards_of(100, 3));
  group.all_gather(tensor);
  group.start_broadcast(tensor, 1).wait();
  const Group messages = group.subgroup({0, 1, 2});
  if (group.rank() == 0) messages.send(tensor, 2);
  if (group.rank() == 2) messages.receive(tensor, 0);
  if (group.rank() == 1) messages.start_send(tensor.to(at::kDouble), 0).wait();
  if (group.rank() == 0) messages.start_receive(tensor.to(at::kDouble), 1).wait();
  if (group.rank() != 2) group.subgroup({0, 1}).all_reduce(tensor);
}

void expect_counted(const Group& group) {
  const Traffic before = group.traffic();
  exchange(group);
  const Traffic more = group.traffic().since(before);
  const int rank = group.rank();
  EXPECT_EQ(more.all_reduce, (rank != 2 ? Traffic::Sum{3, 1200} : Traffic::Sum{2, 800})) << rank;
  EXPECT_EQ(more.reduce_scatter, (Traffic::Sum{2, 800}));
  EXPECT_EQ(more.all_gather, (Traffic::Sum{1, 400}));
  EXPECT_EQ(more.broadcast, (Traffic::Sum{1, 400}));
  EXPECT_EQ(more.sent, (rank == 0   ? Traffic::Sum{1, 400}
                        : rank == 1 ? Traffic::Sum{1, 800}
                                    : Traffic::Sum{}));
  EXPECT_EQ(more.received, (rank == 2   ? Traffic::Sum{1, 400}
                            : rank == 0 ? Traffic::Sum{1, 800}
                                        : Traffic::Sum{}));
}

TEST(Traffic, IsCountedByKindWithThatOfSubgroups) {
  test::with_ranks(3, [] {
    expect_counted(Group::from_environment());
    test::finish_rank();
  });
}

TEST(Traffic, OfThreadsIsCountedForEachOfThem) {
  std::vector<std::thread> threads;
  for (const Group& group : Group::in_threads(3)) threads.emplace_back([group] { expect_counted(group); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Traffic, OfARankAloneIsNone) {
  const Group alone;
  alone.all_reduce(torch::ones({3}));
  EXPECT_EQ(alone.traffic(), Traffic());
}

}  // namespace
}  // namespace funicular::comm::traffic_tests
