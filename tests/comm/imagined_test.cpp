// Claims about ranks that are not there: they give what ranks that all do the same would give.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "funicular/base/error.h"
#include "funicular/comm/mesh.h"
#include "tests/comm/ranks.h"

namespace funicular::comm {
namespace {

using test::with_ranks;

/// The same on every rank: whole numbers, so that sums are exact.
at::Tensor given(int64_t size, at::ScalarType type) {
  return at::arange(1, size + 1, at::kLong).to(type);
}

/// What a rank sees of all collectives, each a tensor.
std::vector<at::Tensor> results(const Group& group) {
  std::vector<at::Tensor> seen;
  const auto keep = [&](const at::Tensor& tensor) { seen.push_back(tensor.clone()); };
  constexpr int64_t kSize = 12;  // three equal pieces
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
    for (const Reduction reduction :
         {Reduction::sum, Reduction::minimum, Reduction::maximum, Reduction::product}) {
      const at::Tensor all = given(kSize, type), part = at::empty({group.shard(kSize).size}, type);
      group.start_all_reduce(all, reduction).wait();
      keep(all);
      group.reduce_scatter(given(kSize, type), part, reduction);
      keep(part);
    }
    const Shard own = group.shard(kSize);
    const at::Tensor reduced = given(kSize, type), gathered = at::full({kSize}, 99, type);
    group.reduce_scatter(reduced, shards_of(kSize, group.size()));
    keep(reduced.narrow(0, own.begin, own.size));
    gathered.narrow(0, own.begin, own.size).copy_(given(own.size, type));
    group.all_gather(gathered);
    keep(gathered);
    const at::Tensor first = given(kSize, type);
    group.broadcast(first, 1);
    keep(first);
  }
  const at::Tensor mean = given(kSize, at::kFloat);
  group.all_reduce(mean, Reduction::average);
  keep(mean);
  return seen;
}

TEST(ImaginedRanks, GiveWhatRanksThatAllDoTheSameGive) {
  with_ranks(3, [] {
    const Group real = Group::from_environment(), imagined = Group::imagined(real.rank(), real.size());
    EXPECT_EQ(imagined.rank(), real.rank());
    const auto expected = results(real), found = results(imagined);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
    for (const std::string& text : {std::string("short"), std::string(5000, 'x')})
      EXPECT_EQ(imagined.gather_texts(text), real.gather_texts(text));
    imagined.barrier();
    real.barrier();
  });
}

TEST(ImaginedRanks, HaveAPlaceInEveryGroupOfAMesh) {
  for (int rank = 0; rank < 12; ++rank) {
    const MeshShape shape{3, 2, 2};
    const Mesh mesh(Group::imagined(rank, 12), shape);
    for (const Axis axis : {Axis::data, Axis::pipeline, Axis::tensor}) {
      EXPECT_EQ(mesh.along(axis).size(), shape.size(axis));
      EXPECT_EQ(mesh.along(axis).rank(), shape.index(rank, axis));
    }
  }
}

TEST(ImaginedRanks, TakeWhatIsSentAndSendZeros) {
  const Group group = Group::imagined(0, 2);
  group.send(at::ones({4}), 1);
  const at::Tensor arrived = at::ones({4});
  const Work work = group.start_receive(arrived, 1);
  work.wait();
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(at::equal(arrived, at::zeros({4})));
  EXPECT_THROW(group.send(arrived, 0), InputError) << "to itself";
  EXPECT_THROW(group.all_reduce(at::ones({2, 3}).t()), InputError) << "checked as ever";
}

TEST(ImaginedRanks, HoldWhatIsUnderWayUntilItIsWaitedFor) {
  const Group group = Group::imagined(1, 2);
  at::Tensor message = at::ones({4});
  const Work work = group.start_send(message, 0);
  EXPECT_FALSE(work.done());
  EXPECT_EQ(message.use_count(), 2u);
  work.wait();
  EXPECT_EQ(message.use_count(), 1u);
}

TEST(ImaginedRanks, AreAtLeastOneAndThisOneIsAmongThem) {
  EXPECT_EQ(Group::imagined(0, 1).size(), 1);
  EXPECT_THROW(Group::imagined(2, 2), InputError);
  EXPECT_THROW(Group::imagined(0, 0), InputError);
}

}  // namespace
}  // namespace funicular::comm
