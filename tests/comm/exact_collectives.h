#pragma once
// What collectives must give, whatever connects the ranks.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "funicular/comm/group.h"

namespace funicular::comm::test {

inline const std::vector<at::ScalarType> kTypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong};

/// Small whole numbers, so that every type holds every sum exactly.
inline at::Tensor values(int rank, int64_t size, at::ScalarType type) {
  return ((at::arange(size, at::kLong) * 7 + rank * 3).remainder(11) - 4).to(type);
}

inline at::Tensor expected(int ranks, int64_t size, at::ScalarType type, Reduction reduction) {
  at::Tensor result = values(0, size, at::kDouble);
  for (int rank = 1; rank < ranks; ++rank) {
    const at::Tensor next = values(rank, size, at::kDouble);
    if (reduction == Reduction::minimum) {
      result = result.minimum(next);
    } else if (reduction == Reduction::maximum) {
      result = result.maximum(next);
    } else if (reduction == Reduction::product) {
      result = result * next;
    } else {
      result = result + next;
    }
  }
  if (reduction == Reduction::average) result = result.to(at::kFloat).div(ranks).to(at::kDouble);
  return result.to(type);
}

/// Which collectives are tried.
struct Tried {
  std::vector<int64_t> sizes{};  ///< empty: those of sizes()
  bool extremes_of_floats = true;
};

inline std::vector<Reduction> reductions_of(at::ScalarType type, const Tried& tried) {
  std::vector<Reduction> result{Reduction::sum, Reduction::product};
  if (type == at::kLong || tried.extremes_of_floats)
    result.insert(result.end(), {Reduction::minimum, Reduction::maximum});
  if (type != at::kLong && type != at::kDouble) result.push_back(Reduction::average);
  return result;
}

inline std::vector<int64_t> sizes(int ranks) {
  return {0, 1, ranks - 1, ranks, 13, 4099, 100003};
}

/// What the last rank gets of all.
inline void expect_rooted_is_exact(const Group& group, int64_t size, at::ScalarType type,
                                   Reduction reduction) {
  const int root = group.size() - 1;
  const Shard own = group.shard(size);
  const at::Tensor reduced = values(group.rank(), size, type), gathered = at::full({size}, 99, type);
  group.reduce(reduced, root, reduction);
  gathered.narrow(0, own.begin, own.size).copy_(values(0, size, type).narrow(0, own.begin, own.size));
  group.gather(gathered, root);
  if (group.rank() != root) return;
  EXPECT_TRUE(at::equal(reduced, expected(group.size(), size, type, reduction))) << type << " " << size;
  EXPECT_TRUE(at::equal(gathered, values(0, size, type))) << type << " " << size;
}

inline void expect_all_collectives_exact(const Group& group, const Tried& tried = {}) {
  for (const at::ScalarType type : kTypes)
    for (const int64_t size : tried.sizes.empty() ? sizes(group.size()) : tried.sizes) {
      const Shard own = group.shard(size);
      for (const Reduction reduction : reductions_of(type, tried)) {
        const at::Tensor wanted = expected(group.size(), size, type, reduction);
        const at::Tensor all = values(group.rank(), size, type);
        group.all_reduce(all, reduction);
        EXPECT_TRUE(at::equal(all, wanted)) << type << " " << size << " " << static_cast<int>(reduction);
        const at::Tensor input = values(group.rank(), size, type), part = at::empty({own.size}, type);
        group.reduce_scatter(input, part, reduction);
        EXPECT_TRUE(at::equal(part, wanted.narrow(0, own.begin, own.size))) << type << " " << size;
        EXPECT_TRUE(at::equal(input, values(group.rank(), size, type))) << "the input was changed";
        expect_rooted_is_exact(group, size, type, reduction);
      }
      at::Tensor gathered = at::full({size}, 99, type);
      gathered.narrow(0, own.begin, own.size).copy_(values(0, size, type).narrow(0, own.begin, own.size));
      group.all_gather(gathered);
      EXPECT_TRUE(at::equal(gathered, values(0, size, type))) << type << " " << size;
      const int root = group.size() - 1;
      const at::Tensor told = values(group.rank(), size, type);
      group.broadcast(told, root);
      EXPECT_TRUE(at::equal(told, values(root, size, type))) << type << " " << size;
    }
  if (!tried.sizes.empty()) return;
  // Between hosts what is so large goes around the ring.
  const at::Tensor large = values(group.rank(), 2200003, at::kFloat);
  group.all_reduce(large);
  EXPECT_TRUE(at::equal(large, expected(group.size(), 2200003, at::kFloat, Reduction::sum)));
}

/// Whichever of the two operands it was.
inline void expect_what_is_no_number_is_kept(const Group& group) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (const Reduction reduction : {Reduction::minimum, Reduction::maximum}) {
      const at::Tensor all = at::ones({100}, type);
      if (group.rank() == 0) all[3].fill_(NAN);
      if (group.rank() == group.size() - 1) all[70].fill_(NAN);
      group.all_reduce(all, reduction);
      const at::Tensor lost = all.isnan();
      EXPECT_TRUE(lost[3].item<bool>() && lost[70].item<bool>())
          << type << " " << static_cast<int>(reduction);
      EXPECT_EQ(lost.sum().item<int64_t>(), 2) << type << " " << static_cast<int>(reduction);
    }
}

/// Of the tensors that ranks [begin, end) draw, ((0 + 1) + (2 + 3)) + …
inline at::Tensor tree_sum(int begin, int end, int64_t size) {
  if (end - begin > 1) {
    const int middle = begin + static_cast<int>(std::bit_floor(static_cast<unsigned>(end - begin - 1)));
    return tree_sum(begin, middle, size) + tree_sum(middle, end, size);
  }
  at::manual_seed(static_cast<uint64_t>(begin));
  return at::randn({size});
}

}  // namespace funicular::comm::test
