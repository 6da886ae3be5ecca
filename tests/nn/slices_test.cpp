// The operations on slices of weights against those on the whole: values and all gradients. The ranks are threads.

#include "funicular/nn/slices.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "formulas.h"
#include "funicular/base/error.h"

namespace funicular::nn {
namespace {

/// Ranks that are threads of this process.
class Meeting {
 public:
  explicit Meeting(int ranks) : barrier(ranks), tensors(static_cast<size_t>(ranks)) {}
  std::barrier<> barrier;
  std::vector<at::Tensor> tensors;
  std::atomic<int64_t> added{0}, moved{0};  ///< bytes of the first rank's tensors
};

class ThreadRanks final : public SliceGroup {
 public:
  ThreadRanks(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(meeting_.tensors.size()); }
  void add(const at::Tensor& tensor) const override {
    if (rank_ == 0) meeting_.added += static_cast<int64_t>(tensor.nbytes());
    together(tensor, [&](const std::vector<at::Tensor>& all) {
      tensor.copy_(all[0]);
      for (size_t r = 1; r < all.size(); ++r) tensor.add_(all[r]);
    });
  }
  void gather_rows(const at::Tensor& tensor, const std::vector<int64_t>& bounds) const override {
    if (rank_ == 0) meeting_.moved += static_cast<int64_t>(tensor.nbytes());
    together(tensor, [&](const std::vector<at::Tensor>& all) {
      for (size_t r = 0; r < all.size(); ++r)
        tensor.slice(0, bounds[r], bounds[r + 1]).copy_(all[r].slice(0, bounds[r], bounds[r + 1]));
    });
  }
  void add_rows(const at::Tensor& tensor, const std::vector<int64_t>& bounds) const override {
    if (rank_ == 0) meeting_.moved += static_cast<int64_t>(tensor.nbytes());
    const auto r = static_cast<size_t>(rank_);
    together(tensor, [&](const std::vector<at::Tensor>& all) {
      at::Tensor sum = all[0].clone();
      for (size_t other = 1; other < all.size(); ++other) sum.add_(all[other]);
      tensor.fill_(NAN);  // what is unspecified must not be used
      tensor.slice(0, bounds[r], bounds[r + 1]).copy_(sum.slice(0, bounds[r], bounds[r + 1]));
    });
  }

 private:
  template <class Use>
  void together(const at::Tensor& tensor, Use use) const {
    const at::NoGradGuard no_gradient;
    ASSERT_TRUE(tensor.is_contiguous());
    meeting_.tensors[static_cast<size_t>(rank_)] = tensor.detach().clone();
    meeting_.barrier.arrive_and_wait();
    use(meeting_.tensors);
    meeting_.barrier.arrive_and_wait();
  }
  Meeting& meeting_;
  const int rank_;
};

/// body(rank, slicing) in a thread a rank; slicing has the group.
void on_ranks(Meeting& meeting, const std::function<void(int, const Slicing&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(meeting.tensors.size()); ++rank)
    threads.emplace_back([&, rank] {
      Slicing slicing;
      slicing.activate(std::make_shared<ThreadRanks>(meeting, rank), false);
      body(rank, slicing);
    });
  for (std::thread& thread : threads) thread.join();
}

at::Tensor leaf(const at::Tensor& value) {
  return value.detach().clone(at::MemoryFormat::Contiguous).set_requires_grad(true);
}
at::Tensor part(const at::Tensor& whole, int64_t dimension, const std::vector<int64_t>& bounds, int rank) {
  return whole.detach().slice(dimension, bounds[static_cast<size_t>(rank)],
                              bounds[static_cast<size_t>(rank) + 1]);
}

class Slices : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};

TEST(SliceBounds, AreAsEvenAsWholeUnitsCanBe) {
  EXPECT_EQ(slice_bounds(12, 1, 3), (std::vector<int64_t>{0, 4, 8, 12}));
  EXPECT_EQ(slice_bounds(4, 1, 3), (std::vector<int64_t>{0, 2, 3, 4}));
  EXPECT_EQ(slice_bounds(48, 12, 3), (std::vector<int64_t>{0, 24, 36, 48}));
  EXPECT_EQ(slice_bounds(30522, 2, 2), (std::vector<int64_t>{0, 15262, 30522}));
}

TEST_P(Slices, SomeHeadsAreThoseOfTheWholeAttentionWithTheSameUnitsDropped) {
  const Keys keys = make_keys({1, 7, 40, 65, 16});
  const DropoutSite site{0.3, Purpose::dropout_attention, 3};
  const int64_t heads = 4, size = 6, tokens = keys.packing.tokens();
  const at::Tensor whole = random({tokens, 3 * heads * size}, 1), bias = random({3 * heads * size}, 3);
  const at::Tensor upstream = random({tokens, heads * size}, 2).detach();
  const at::Tensor expected = attention(whole, bias, keys.packing, heads, site);
  expected.backward(upstream);
  const auto bounds = slice_bounds(heads, 1, ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    const int64_t first = bounds[static_cast<size_t>(rank)],
                  count = bounds[static_cast<size_t>(rank) + 1] - first;
    const auto own = [&](const at::Tensor& side_by_side, int64_t parts) {
      const at::Tensor by_head = side_by_side.detach().unflatten(-1, {parts, heads, size});
      return by_head.narrow(-2, first, count).flatten(-3).contiguous();
    };
    const at::Tensor mine = leaf(own(whole, 3)), own_bias = leaf(own(bias, 3));
    const at::Tensor found = attention_of_heads(mine, own_bias, keys.packing, {first, count}, site);
    found.backward(own(upstream, 1));
    EXPECT_LT(difference(found, own(expected, 1)), 1e-14);
    EXPECT_LT(difference(mine.grad(), own(whole.grad(), 3)), 1e-14);
    EXPECT_LT(difference(own_bias.grad(), own(bias.grad(), 3)), 1e-14);
  }
}

/// x + up and down again, beside the trunk, of whole weights.
struct Block {
  at::Tensor x, up, bias, down, upstream, out;
  int64_t channels = 10;
  explicit Block(int64_t rows) {
    x = random({rows, 6}, 1), up = random({channels, 6}, 2), bias = random({channels}, 3);
    down = random({6, channels}, 4), upstream = random({rows, 6}, 5).detach();
    const Branch branch = feed_forward_branch(x, up, bias, down, Activation::gelu);
    out = branch.output + 2 * branch.trunk;
    out.backward(upstream);
  }
};

TEST_P(Slices, ABranchWhoseWeightsAreCutGivesTheValuesAndGradientsOfTheWhole) {
  const Block whole(9);
  Meeting meeting(ranks());
  const auto bounds = slice_bounds(whole.channels, 1, ranks());
  on_ranks(meeting, [&](int rank, const Slicing& slicing) {
    const at::Tensor x = leaf(whole.x), up = leaf(part(whole.up, 0, bounds, rank)),
                     bias = leaf(part(whole.bias, 0, bounds, rank)),
                     down = leaf(part(whole.down, 1, bounds, rank));
    const Branch branch = feed_forward_branch(enter_slices(x, slicing), up, bias, down, Activation::gelu);
    const at::Tensor out = leave_slices(branch.output, slicing) + 2 * once(branch.trunk, slicing);
    out.backward(whole.upstream);
    EXPECT_LT(difference(out, whole.out), 1e-14);
    EXPECT_LT(difference(x.grad(), whole.x.grad()), 1e-14) << "on every rank the whole gradient";
    EXPECT_LT(difference(up.grad(), part(whole.up.grad(), 0, bounds, rank)), 1e-14);
    EXPECT_LT(difference(bias.grad(), part(whole.bias.grad(), 0, bounds, rank)), 1e-14);
    EXPECT_LT(difference(down.grad(), part(whole.down.grad(), 1, bounds, rank)), 1e-14);
  });
  EXPECT_EQ(meeting.added, 2 * 9 * 6 * 8) << "a sum in forward, one in backward";
}

TEST_P(Slices, RowsBetweenTheSlicesMayBeDividedToo) {
  const Block whole(9);
  Meeting meeting(ranks());
  const auto bounds = slice_bounds(whole.channels, 1, ranks());
  RowBounds rows = slice_bounds(9, 1, ranks());
  if (ranks() > 1) rows[1] = 1;  // any division
  on_ranks(meeting, [&](int rank, const Slicing& slicing) {
    const at::Tensor x = leaf(part(whole.x, 0, rows, rank)), up = leaf(part(whole.up, 0, bounds, rank)),
                     bias = leaf(part(whole.bias, 0, bounds, rank)),
                     down = leaf(part(whole.down, 1, bounds, rank));
    const Branch branch =
        feed_forward_branch(enter_slices(x, slicing, rows), up, bias, down, Activation::gelu);
    const at::Tensor out = leave_slices(branch.output, slicing, rows) + 2 * x;
    out.backward(part(whole.upstream, 0, rows, rank));
    EXPECT_LT(difference(out, part(whole.out, 0, rows, rank)), 1e-14);
    EXPECT_LT(difference(x.grad(), part(whole.x.grad(), 0, rows, rank)), 1e-14);
    EXPECT_LT(difference(up.grad(), part(whole.up.grad(), 0, bounds, rank)), 1e-14);
    EXPECT_LT(difference(bias.grad(), part(whole.bias.grad(), 0, bounds, rank)), 1e-14);
    EXPECT_LT(difference(down.grad(), part(whole.down.grad(), 1, bounds, rank)), 1e-14);
    // There and back again.
    const at::Tensor same = leaf(whole.x);
    const at::Tensor doubled = all_rows(2 * own_rows(same, slicing, rows), slicing, rows);
    doubled.backward(whole.upstream);
    EXPECT_LT(difference(doubled, 2 * whole.x.detach()), 1e-15);
    EXPECT_LT(difference(same.grad(), 2 * whole.upstream), 1e-15);
  });
  EXPECT_EQ(meeting.added, 0);
  EXPECT_EQ(meeting.moved, (4 + 2) * 9 * 6 * 8) << "each sum is two halves of one";
}

TEST_P(Slices, EmbeddingsOfACutVocabularyAreThoseOfTheWhole) {
  const Keys keys = make_keys({4, 1, 9});
  const int64_t words = 11, width = 6, tokens = keys.packing.tokens();
  const at::Tensor word = random({words, width}, 1), position = random({12, width}, 2),
                   type = random({2, width}, 3), gamma = random({width}, 4), beta = random({width}, 5);
  const at::Tensor upstream = random({tokens, width}, 6).detach();
  const at::Tensor ids = at::tensor({0, 3, 10, 3, 5, 7, 0, 1, 2, 9, 4, 4, 8, 6}, at::kLong),
                   types = at::arange(tokens, at::kLong).remainder(2);
  const DropoutSite site{0.2, Purpose::dropout_embedding, 0};
  const at::Tensor expected =
      embed({word, position, type, /*padding=*/3}, ids, types, {gamma, beta}, keys.packing, site);
  expected.backward(upstream);
  EXPECT_EQ(word.grad()[3].abs().sum().item<double>(), 0);
  Meeting meeting(ranks());
  const auto bounds = slice_bounds(words, 1, ranks());
  on_ranks(meeting, [&](int rank, const Slicing& slicing) {
    const at::Tensor own = leaf(part(word, 0, bounds, rank)), where = leaf(position), kind = leaf(type),
                     scale = leaf(gamma), shift = leaf(beta);
    const VocabularySlice slice{bounds[static_cast<size_t>(rank)], words, slicing.group()};
    const EmbeddingTables tables{own, where, kind, 3};
    const at::Tensor found =
        embed(tables, slice, slicing.shared_group(), ids, types, {scale, shift}, keys.packing, site);
    found.backward(upstream);
    EXPECT_LT(difference(found, expected), 1e-15);
    EXPECT_LT(difference(own.grad(), part(word.grad(), 0, bounds, rank)), 1e-15);
    EXPECT_LT(difference(where.grad(), position.grad()), 1e-15);
    EXPECT_LT(difference(kind.grad(), type.grad()), 1e-15);
    EXPECT_LT(difference(scale.grad(), gamma.grad()), 1e-15);
    EXPECT_LT(difference(shift.grad(), beta.grad()), 1e-15);
    EXPECT_THROW(
        embed(tables, slice, slicing.shared_group(), ids + 1, types, {scale, shift}, keys.packing, site),
        InputError)
        << "token 11 of 11";
  });
  EXPECT_EQ(meeting.added, tokens * width * 8);
}

TEST_P(Slices, TheCrossEntropyOfACutVocabularyIsThatOfTheWholeForThreeNumbersARow) {
  const int64_t rows = kLogitRows + 5, words = 23, width = 4;
  for (const auto& [type, bound] :
       {std::pair{at::kDouble, 1e-13}, {at::kFloat, 1e-6}, {at::kBFloat16, 2e-2}}) {
    // Logits of hundreds: exponentials of these alone would overflow.
    const auto made = [&, type = type](at::IntArrayRef shape, uint64_t seed) {
      return leaf((random(shape, seed) * 8).to(shape.size() > 1 || type == at::kDouble ? type : at::kFloat));
    };
    const at::Tensor hidden = made({rows, width}, 1), weight = made({words, width}, 2),
                     bias = made({words}, 3);
    const at::Tensor labels = at::arange(rows, at::kLong).mul(7).remainder(words);
    const at::Tensor expected = vocabulary_cross_entropy(hidden, weight, bias, labels);
    (expected * 0.25).backward();
    Meeting meeting(ranks());
    const auto bounds = slice_bounds(words, 1, ranks());
    on_ranks(meeting, [&, type = type, bound = bound](int rank, const Slicing& slicing) {
      const at::Tensor x = leaf(hidden), own = leaf(part(weight, 0, bounds, rank)),
                       shift = leaf(part(bias, 0, bounds, rank));
      const VocabularySlice slice{bounds[static_cast<size_t>(rank)], words, slicing.group()};
      const at::Tensor found = vocabulary_cross_entropy(enter_slices(x, slicing), own, shift, labels, slice);
      (found * 0.25).backward();
      EXPECT_LT(std::abs(found.item<double>() / expected.item<double>() - 1), bound);
      EXPECT_LT(distance(x.grad(), hidden.grad()), bound) << type;
      EXPECT_LT(distance(own.grad(), part(weight.grad(), 0, bounds, rank)), bound) << type;
      EXPECT_LT(distance(shift.grad(), part(bias.grad(), 0, bounds, rank)), bound) << type;
      const at::NoGradGuard no_gradient;
      EXPECT_NEAR(vocabulary_cross_entropy(x, own, shift, labels, slice).item<double>(), found.item<double>(),
                  1e-9 * std::abs(found.item<double>()));
    });
    // Once with gradients, once without; and the gradient of `hidden`.
    EXPECT_EQ(meeting.moved, 2 * ranks() * 2 * rows * 8);
    EXPECT_EQ(meeting.added, static_cast<int64_t>(hidden.nbytes()));
  }
}

INSTANTIATE_TEST_SUITE_P(, Slices, testing::Values(1, 2, 3));

/// With numbers at both ends of [0, 1), and two words that are equally probable, of two ranks.
TEST_P(Slices, TokensOfACutVocabularyAreDrawnAsOfTheWhole) {
  constexpr int64_t kRows = 700, kWords = 23;
  // Multiples of 1/64: their products are exact, so that two words are equally probable whatever a product's blocks are.
  const auto coarse = [](at::IntArrayRef sizes, uint64_t seed) {
    return random(sizes, seed).detach().mul(64).round().div(64);
  };
  const at::Tensor hidden = coarse({kRows, 6}, 1), weight = coarse({kWords, 6}, 2),
                   bias = coarse({kWords}, 3);
  weight.narrow(0, kWords - 1, 1).copy_(weight.narrow(0, 0, 1));
  bias.narrow(0, kWords - 1, 1).copy_(bias.narrow(0, 0, 1));
  const at::Tensor labels = at::arange(kRows, at::kLong) * 5 % kWords;
  VocabularyDraw whole;
  torch::manual_seed(5);
  whole.uniforms = torch::rand({kRows}, torch::kDouble);
  whole.uniforms[0] = 0;
  whole.uniforms[1] = 1 - 0x1p-53;
  whole.wants_best = true;
  const at::Tensor loss = vocabulary_cross_entropy(hidden, weight, bias, labels, &whole);
  ASSERT_GT(at::bincount(whole.tokens).count_nonzero().item<int64_t>(), kWords / 2);
  Meeting meeting(ranks());
  const auto bounds = slice_bounds(kWords, 1, ranks());
  on_ranks(meeting, [&](int rank, const Slicing& slicing) {
    const VocabularySlice slice{bounds[static_cast<size_t>(rank)], kWords, slicing.group()};
    VocabularyDraw draw{.uniforms = whole.uniforms, .wants_best = true};
    const at::Tensor own =
        vocabulary_cross_entropy(hidden, part(weight, 0, bounds, rank).contiguous(),
                                 part(bias, 0, bounds, rank).contiguous(), labels, slice, &draw);
    EXPECT_LT(difference(own, loss), 1e-10);
    EXPECT_TRUE(at::equal(draw.tokens, whole.tokens));
    EXPECT_TRUE(at::equal(draw.best, whole.best));
  });
}

TEST_P(Slices, ColumnsOfAllRanksStandInTheOrderOfTheWhole) {
  constexpr int64_t kRows = 5, kUnit = 2, kSize = 14, kParts = 3;
  Meeting meeting(ranks());
  const auto bounds = slice_bounds(kSize, kUnit, ranks());
  const at::Tensor whole = random({kRows, kParts * kSize}, 1).detach(),
                   upstream = random({kRows, kParts * kSize}, 2).detach();
  on_ranks(meeting, [&](int rank, const Slicing& slicing) {
    const auto own = [&](const at::Tensor& all) {
      std::vector<at::Tensor> parts;
      for (int64_t p = 0; p < kParts; ++p)
        parts.push_back(part(all.narrow(1, p * kSize, kSize), 1, bounds, rank));
      return at::cat(parts, 1);
    };
    const at::Tensor mine = leaf(own(whole)), found = all_columns(mine, slicing, kSize, kUnit, kParts);
    found.backward(upstream);
    EXPECT_TRUE(at::equal(found, whole));
    EXPECT_TRUE(at::equal(mine.grad(), own(upstream)));
  });
}

TEST(WholeWeights, PassThroughUntouched) {
  const Slicing slicing;
  const at::Tensor x = random({3, 2}, 1);
  EXPECT_TRUE(enter_slices(x, slicing).is_same(x));
  EXPECT_TRUE(leave_slices(x, slicing).is_same(x));
  EXPECT_TRUE(once(x, slicing).is_same(x));
  EXPECT_EQ(slicing.first(12, 4), 0);
}

}  // namespace
}  // namespace funicular::nn
