// Claims about ranks on a grid.
#include "funicular/comm/mesh.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>

#include "funicular/base/error.h"
#include "ranks.h"

namespace funicular::comm {
namespace {

using test::is_rank;
using test::with_ranks;

constexpr Axis kAxes[] = {Axis::data, Axis::pipeline, Axis::tensor};

TEST(Meshes, GiveEachRankOnePlaceAndTensorGroupsNeighbours) {
  const MeshShape shape = MeshShape::of(24, 3, 2);
  EXPECT_EQ(shape, (MeshShape{.data = 4, .pipeline = 3, .tensor = 2}));
  std::set<std::vector<int>> places;
  for (int rank = 0; rank < 24; ++rank) {
    std::vector<int> place;
    for (const Axis axis : kAxes) {
      place.push_back(shape.index(rank, axis));
      const std::vector<int> group = shape.along(rank, axis);
      ASSERT_EQ(static_cast<int>(group.size()), shape.size(axis));
      EXPECT_EQ(group[static_cast<size_t>(place.back())], rank);
      for (const int other : group)
        for (const Axis axis2 : kAxes)
          EXPECT_TRUE(axis2 == axis || shape.index(other, axis2) == shape.index(rank, axis2));
    }
    EXPECT_EQ(rank, (place[0] * 3 + place[1]) * 2 + place[2]);
    EXPECT_EQ(shape.reads_first(rank), place[1] == 0 && place[2] == 0);
    places.insert(place);
  }
  EXPECT_EQ(places.size(), 24u);
  EXPECT_EQ(shape.along(5, Axis::tensor), (std::vector<int>{4, 5}));
  EXPECT_EQ(shape.along(5, Axis::pipeline), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(shape.along(5, Axis::data), (std::vector<int>{5, 11, 17, 23}));
}

TEST(Meshes, HaveTheRanksOfATensorGroupOnOneHost) {
  using Order = std::vector<int>;
  EXPECT_EQ(order_by_host({0, 0, 1, 1}, 2), (Order{0, 1, 2, 3}));
  EXPECT_EQ(order_by_host({0, 1, 0, 1}, 2), (Order{0, 2, 1, 3}));
  EXPECT_EQ(order_by_host({0, 1, 1, 0, 2, 2}, 2), (Order{0, 3, 1, 2, 4, 5}));
  EXPECT_EQ(order_by_host({0, 1, 2, 0, 1, 2, 0, 1, 2}, 3), (Order{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  // Nothing is moved that need not be, though hosts alternate.
  EXPECT_EQ(order_by_host({0, 0, 1, 1, 0, 0}, 2), (Order{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(order_by_host({0, 1, 1, 1}, 2), Order());
  EXPECT_EQ(order_by_host({0, 0, 0}, 1), (Order{0, 1, 2}));
}

TEST(Meshes, KeepTheOrderOfRanksOfOneHost) {
  with_ranks(4, [] {
    const Group world = Group::from_environment();
    EXPECT_EQ(world.hosts(), std::vector<int>(4));
    EXPECT_EQ(group_by_host(world, 2).rank(), world.rank());
    if (testing::Test::HasFailure()) std::exit(1);
  });
}

TEST(Meshes, RefuseRanksThatDoNotDivide) {
  EXPECT_THROW(MeshShape::of(6, 2, 2), InputError);
  EXPECT_THROW(MeshShape::of(6, 0, 2), InputError);
  EXPECT_THROW(Mesh(Group(), {.tensor = 2}), InputError);
}

TEST(Meshes, GroupsAddUpAlongTheirAxisOnly) {
  with_ranks(4, [] {
    const Group world = Group::from_environment();
    const Mesh mesh(world, MeshShape::of(4, 1, 2));
    for (const Axis axis : kAxes) {
      const at::Tensor sum = at::tensor({static_cast<int64_t>(world.rank())}, at::kLong);
      mesh.along(axis).all_reduce(sum);
      int64_t expected = 0;
      for (const int rank : mesh.shape().along(world.rank(), axis)) expected += rank;
      EXPECT_EQ(sum.item<int64_t>(), expected);
      EXPECT_EQ(mesh.along(axis).rank(), mesh.index(axis));
    }
    world.barrier();
    if (testing::Test::HasFailure()) std::exit(1);
  });
  if (is_rank()) return;
}

}  // namespace
}  // namespace funicular::comm
