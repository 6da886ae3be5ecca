// Packed attention against its formula in float64: lengths around the kernels' blocks and up to BERT's 512,
// all heads' sizes in use, every storage type, with and without dropout, of all queries and of some. The
// bounds follow from the number of roundings, and are tight enough to notice a scale that is 1 % off.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "formulas.h"
#include "funicular/nn/device/attention_choice.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/row_subset.h"
#include "funicular/nn/slices.h"
#include "funicular/runtime/gpu_cards.h"
#include "tests/team_kernels.h"

namespace funicular::nn {
namespace {

constexpr int64_t kAttentionHeads = 2;
/// Around registers, tiles, blocks of 64 queries and powers of two up to 512. Short ones lie side by side and
/// between long ones, for those that are attended to together.
const std::vector<int32_t> kLengthsToBert = {15, 16, 1,   2,   511, 17, 31,  1,   33,  63,  257,
                                             64, 65, 300, 127, 2,   15, 128, 129, 255, 256, 512};

/// Context, and the gradients of queries, keys, values [T, H] and of their bias.
struct Results {
  at::Tensor context, query, key, value, bias;
};

Results results_of(const at::Tensor& context, const at::Tensor& qkv, const at::Tensor& bias) {
  const int64_t hidden = qkv.size(1) / 3;
  const auto wide = [](const at::Tensor& x) { return x.detach().to(at::kCPU, at::kDouble); };
  const at::Tensor gradient = wide(qkv.grad());
  return {wide(context), gradient.narrow(1, 0, hidden), gradient.narrow(1, hidden, hidden),
          gradient.narrow(1, 2 * hidden, hidden), wide(bias.grad())};
}

/// What goes in, the same for all types: numbers of 8 bits.
struct Inputs {
  at::Tensor qkv, bias, upstream;
  Inputs(int64_t tokens, int64_t size)
      : qkv(of_8_bits({tokens, 3 * kAttentionHeads * size}, 1)),
        bias(of_8_bits({3 * kAttentionHeads * size}, 2)),
        upstream(of_8_bits({tokens, kAttentionHeads * size}, 3)) {}
  static at::Tensor of_8_bits(at::IntArrayRef shape, uint64_t seed) {
    return random(shape, seed).detach().to(at::kBFloat16).to(at::kDouble);
  }
};

/// `rows`: of the queries that ask; undefined: all.
Results formula(const Inputs& in, const Keys& keys, const DropoutSite& site, const at::Tensor& rows,
                double stretch = 1, int64_t window = -1) {
  const at::Tensor qkv = in.qkv.clone().set_requires_grad(true),
                   bias = in.bias.clone().set_requires_grad(true);
  at::Tensor context = plain_attention(qkv + bias, keys, kAttentionHeads, site, stretch, window),
             upstream = in.upstream;
  if (rows.defined()) context = context.index_select(0, rows), upstream = upstream.index_select(0, rows);
  context.backward(upstream);
  return results_of(context, qkv, bias);
}

/// Computes at `place`. `repeatable`: as attention's; without it, the product before the attention adds the bias.
Results kernel(const Inputs& in, const Keys& keys, const DropoutSite& site, const at::Tensor& rows,
               at::ScalarType type, at::Device place, bool repeatable, int64_t window) {
  const at::ScalarType vectors = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor qkv = in.qkv.to(place, type, false, true).set_requires_grad(true),
                   bias = in.bias.to(place, vectors, false, true).set_requires_grad(true);
  const Packing packing = keys.packing.to(place);
  std::optional<RowSubset> subset;
  if (rows.defined()) subset = select_rows(packing, rows);
  const AttentionPattern pattern{.window = window};
  const at::Tensor context =
      repeatable ? attention(qkv, bias, packing, kAttentionHeads, site, subset, repeatable, pattern)
                 : attention_branch(qkv, at::eye(qkv.size(1), qkv.options().requires_grad(false)), bias,
                                    packing, {0, kAttentionHeads}, site, subset, repeatable, pattern)
                       .output;
  context.backward((rows.defined() ? in.upstream.index_select(0, rows) : in.upstream).to(place, type));
  return results_of(context, qkv, bias);
}

/// Of the first and the last token, of every third, and none of each fourth sequence.
at::Tensor some_rows(const Keys& keys) {
  std::vector<int64_t> rows;
  for (size_t s = 0; s < keys.lengths.size(); ++s)
    for (int64_t i = 0; i < keys.lengths[s]; ++i)
      if (s % 4 != 3 && (i % 3 == 0 || i + 1 == keys.lengths[s]))
        rows.push_back(keys.packing.host_offsets[s] + i);
  return at::tensor(rows, at::kLong);
}

/// Of the distance of one sequence's part, in unit roundoffs.
struct Bounds {
  double context, scores, values;  ///< scores: gradients of queries and keys
};

/// In 16 bits: keys, queries and values with their bias are rounded where the product takes bfloat16s, then
/// the probabilities and what comes out; a score's error is that of two roundings times its size, here about
/// 2. In backward the scores' gradients are rounded too. Teams take the sums of these from the context, which
/// is rounded, so that they do not cancel. In more bits the errors are those of sums and of exponents, of
/// scores up to 20.
Bounds bounds_of(at::ScalarType type, bool team) {
  if (type == at::kDouble || type == at::kFloat) return {16, 150, 32};
  return team ? Bounds{1.5, 6, 2.5} : Bounds{1.5, 3.5, 2.5};
}

class Attention : public testing::TestWithParam<std::tuple<double, bool>> {
 protected:
  double probability() const { return std::get<0>(GetParam()); }
  bool team() const { return std::get<1>(GetParam()); }
  /// Teams of threads of a processor are.
  bool slow() const { return team() && team_.place().is_cpu(); }

  void check(bool some) const {
    check(some, make_keys(slow() ? std::vector<int32_t>{2, 1, 31, 65, 257} : kLengthsToBert), {16, 32, 64},
          -1);
  }

  void check(bool some, const Keys& keys, const std::vector<int64_t>& sizes, int64_t window) const {
    const DropoutSite site{probability(), Purpose::dropout_attention, 3};
    const at::Tensor rows = some ? some_rows(keys) : at::Tensor();
    for (const int64_t size : sizes) {
      const Inputs in(keys.packing.tokens(), size);
      const Results expected = formula(in, keys, site, rows, 1, window);
      for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        if (size != 32 && (slow() || type == at::kFloat || type == at::kHalf)) continue;
        SCOPED_TRACE(testing::Message() << "heads of " << size << ", " << type);
        const auto expect = [&](bool repeatable) {
          expect_near(kernel(in, keys, site, rows, type, team_.place(), repeatable, window), expected, keys,
                      rows, type, window);
        };
        expect(/*repeatable=*/true);
        if (team() && at::elementSize(type) == 2) {  // tensor cores have computed
          const device::PreferAttention tiles(device::AttentionKernels::tiles);
          expect(/*repeatable=*/true);
        }
        // LibTorch's attention in 16 bits, whose dropout mask is its own.
        if (team_.place().is_cuda() && probability() == 0) {
          const device::PreferAttention flash(device::AttentionKernels::flash);
          expect(/*repeatable=*/false);
        }
      }
    }
  }

 private:
  void expect_near(const Results& found, const Results& expected, const Keys& keys, const at::Tensor& rows,
                   at::ScalarType type, int64_t window) const {
    const double u = unit_roundoff(type);
    const Bounds bounds = bounds_of(type, team());
    const auto& tokens = keys.packing.host_offsets;
    const std::vector<int64_t> asked = rows.defined() ? select_rows(keys.packing, rows).offsets
                                                      : std::vector<int64_t>(tokens.begin(), tokens.end());
    for (size_t s = 0; s < keys.lengths.size(); ++s) {
      SCOPED_TRACE(testing::Message() << "sequence " << s << " of " << keys.lengths[s]);
      const auto of = [&](const at::Tensor& x) { return x.narrow(0, tokens[s], keys.lengths[s]); };
      if (asked[s + 1] == asked[s]) {  // nobody asked: no gradient
        for (const at::Tensor& gradient : {found.query, found.key, found.value})
          EXPECT_FALSE(of(gradient).any().item<bool>());
        continue;
      }
      const auto context = [&](const Results& x) {
        return x.context.narrow(0, asked[s], asked[s + 1] - asked[s]);
      };
      EXPECT_LT(distance(context(found), context(expected)), bounds.context * u);
      EXPECT_LT(distance(of(found.value), of(expected.value)), bounds.values * u);
      // Of one or two keys the gradients of scores all but cancel: they are related to those of values.
      const bool several = keys.lengths[s] > 2 && window != 0;
      const double least = several ? 0 : of(expected.value).norm().item<double>();
      for (const auto part : {&Results::query, &Results::key}) {
        const at::Tensor wanted = of(expected.*part);
        EXPECT_LT((of(found.*part) - wanted).norm().item<double>(),
                  bounds.scores * u * std::max(wanted.norm().item<double>(), least))
            << (part == &Results::query ? "query" : "key");
      }
    }
    // A sum over the rows: their errors average out.
    EXPECT_LT(distance(found.bias, expected.bias), bounds.values * u);
  }

  TeamKernels team_{std::get<1>(GetParam())};
};

TEST_P(Attention, EqualsItsFormulaAtEveryLengthWithGradients) {
  check(false);
}

TEST_P(Attention, OfSomeQueriesEqualsItsFormulaAtEveryLengthWithGradients) {
  check(true);
}

/// Returns lengths around a window, and around the 256 neighbours whose keys are packed together.
std::vector<int32_t> lengths_around(int64_t window, bool slow) {
  const auto w = static_cast<int32_t>(window);
  if (slow) return {1, w + 1, w + 2, 65};
  return {1, w + 1, w + 2, 2 * w + 2, 256, 257, 256 + w, 257 + w, 513 + w};
}

/// On a GPU this also runs LibTorch's attention, which must not be asked for some queries in a window.
TEST_P(Attention, OfAWindowEqualsItsFormulaWithGradients) {
  for (const int64_t window : {0, 1, 7, 31, 64, 200})
    for (const bool some : {false, true}) {
      if (slow() && window > 31) continue;
      SCOPED_TRACE(testing::Message() << "window " << window << (some ? ", some queries" : ""));
      check(some, make_keys(lengths_around(window, slow())), {32}, window);
    }
}

/// Tiles of 16 and of 8 queries, as float64 has them on cards that allow a team 64 KiB or less.
TEST_P(Attention, OnACardWithLittleMemoryEqualsItsFormulaInSmallerTiles) {
  if (!team()) GTEST_SKIP() << "the processor's kernels have no such limit";
  const device::PreferAttention tiles(device::AttentionKernels::tiles);
  for (const int64_t bytes : {65'536, 20'000}) {
    SCOPED_TRACE(testing::Message() << bytes << " bytes");
    const funicular::device::LimitSharedBytes little(bytes);
    check(false, make_keys({1, 15, 17, 65}), {32}, -1);
    check(true, make_keys({33, 8}), {32}, 7);
  }
  const funicular::device::LimitSharedBytes too_little(10'000);
  EXPECT_THROW(check(false, make_keys({17}), {32}, -1), InputError);
}

/// Of the formulas alone: a bound that lets such an error pass would be of no use.
TEST(AttentionsBounds, NoticeAScaleThatIsOnePercentOffAndKeysThatAreLeftOut) {
  const Keys keys = make_keys({17, 64, 300});
  const DropoutSite none{0, Purpose::dropout_attention, 3};
  const Bounds bounds = bounds_of(at::kBFloat16, false);
  const double u = unit_roundoff(at::kBFloat16);
  for (const int64_t size : {16, 32, 64}) {
    const Inputs in(keys.packing.tokens(), size);
    const Results right = formula(in, keys, none, {}), one = formula(in, keys, none, {}, 1.01),
                  three = formula(in, keys, none, {}, 1.03);
    EXPECT_GT(distance(one.query, right.query), bounds.scores * u);
    EXPECT_GT(distance(one.key, right.key), bounds.scores * u);
    EXPECT_GT(distance(one.value, right.value), bounds.values * u);
    EXPECT_GT(distance(three.context, right.context), bounds.context * u);
  }
}

INSTANTIATE_TEST_SUITE_P(, Attention, testing::Combine(testing::Values(0.0, 0.1), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param) ? "Team" : "Processor") +
                                  (std::get<0>(info.param) > 0 ? "WithDropout" : "WithoutDropout");
                         });

}  // namespace
}  // namespace funicular::nn
