// Attention by tensor cores (nn/device/short_attention.h): in tests a thread stands for each warp. Beside the
// processor's kernels in float64, which attention_test.cpp compares with the formula; and the masks of dropout, bit for bit.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "formulas.h"
#include "funicular/nn/attention_pattern.h"
#include "funicular/nn/device/attention_choice.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/row_subset.h"
#include "tests/team_kernels.h"

namespace funicular::nn::short_attention_tests {
namespace {

using device::AttentionKernels;
using device::AttentionNeeds;

constexpr int64_t kHeads = 2;

struct Shape {
  std::string name;
  std::vector<int32_t> lengths;
  int64_t head_size = 32;
  double dropout = 0;
  at::ScalarType type = at::kBFloat16;
  int64_t window = -1;
  bool some_queries = false, turned = false;
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.name;
}

/// The context and the gradients of queries, keys, values and of their bias.
using Results = std::vector<at::Tensor>;

at::Tensor of_8_bits(at::IntArrayRef shape, uint64_t seed) {
  return random(shape, seed).detach().to(at::kBFloat16).to(at::kDouble);
}

Results run(const Shape& shape, const Keys& keys, at::ScalarType type, at::Device place) {
  const at::ScalarType vectors = type == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t tokens = keys.packing.tokens(), hidden = kHeads * shape.head_size;
  const Packing packing = keys.packing.to(place);
  const at::Tensor qkv = of_8_bits({tokens, 3 * hidden}, 1).to(place, type).set_requires_grad(true),
                   bias = of_8_bits({3 * hidden}, 2).to(place, vectors).set_requires_grad(true);
  AttentionPattern pattern{.window = shape.window};
  if (shape.turned)
    pattern.rotations = rotations(packing.longest(), shape.head_size, 100, qkv.options().dtype(vectors));
  std::optional<RowSubset> subset;
  std::vector<int64_t> rows(static_cast<size_t>(tokens));
  std::iota(rows.begin(), rows.end(), 0);
  if (shape.some_queries) {
    std::erase_if(rows, [](int64_t row) { return row % 3 == 1; });
    subset = select_rows(packing, at::tensor(rows, at::kLong));
  }
  const at::Tensor context =
      attention(qkv, bias, packing, kHeads, {shape.dropout, Purpose::dropout_attention, 3}, subset,
                /*repeatable=*/true, pattern);
  const at::Tensor upstream = of_8_bits({tokens, hidden}, 3).index_select(0, at::tensor(rows, at::kLong));
  context.backward(upstream.to(place, type));
  Results results{context.detach()};
  for (const at::Tensor& part : qkv.grad().chunk(3, 1)) results.push_back(part);
  results.push_back(bias.grad());
  for (at::Tensor& result : results) result = result.to(at::kCPU, at::kDouble);
  return results;
}

class ShortAttention : public testing::TestWithParam<Shape> {};

/// Bounds in unit roundoffs, as those of attention_test.cpp for teams: roundings of queries, keys and values with their
/// bias, of probabilities and of scores' gradients.
TEST_P(ShortAttention, FollowsFloat64UpToRounding) {
  const Shape& shape = GetParam();
  const Keys keys = make_keys(shape.lengths);
  const Results expected = run(shape, keys, at::kDouble, at::kCPU);
  const TeamKernels team;
  const device::PreferAttention tensor_cores(AttentionKernels::tensor_cores);
  const Results found = run(shape, keys, shape.type, team.place());
  const std::vector<const char*> names{"context", "queries", "keys", "values", "bias"};
  const std::vector<double> bounds{1.5, 6, 6, 2.5, 2.5};
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_LT(distance(found[i], expected[i]), bounds[i] * unit_roundoff(shape.type)) << names[i];
}

const std::vector<int32_t> kLengths{1, 2, 15, 16, 17, 33, 63, 64, 65, 100};

INSTANTIATE_TEST_SUITE_P(
    , ShortAttention,
    testing::Values(Shape{"Plain", kLengths}, Shape{"Dropout", kLengths, 32, 0.3},
                    Shape{"Half", kLengths, 32, 0.3, at::kHalf}, Shape{"HeadsOf64", {40, 65}, 64, 0.1},
                    Shape{"HeadsOf96", {40, 65}, 96, 0.1}, Shape{"HeadsOf128", {40, 65}, 128, 0.1},
                    Shape{"HeadsOf12", {40, 65}, 12, 0.1}, Shape{"HeadsOf33", {40, 65}, 33, 0.1},
                    Shape{"HeadsOf72", {40, 65}, 72, 0.1},
                    Shape{"Window", {1, 8, 100, 150}, 32, 0.1, at::kBFloat16, 7},
                    // Windows of width 1 end where a tile of 48, 64 or 96 keys begins.
                    Shape{"NarrowWindow", {150}, 32, 0, at::kBFloat16, 1},
                    Shape{"WideWindow", {150}, 32, 0, at::kBFloat16, 64},
                    Shape{"SomeQueries", kLengths, 32, 0.3, at::kBFloat16, -1, true},
                    Shape{"SomeQueriesInAWindow", {100, 20}, 32, 0.1, at::kHalf, 9, true},
                    Shape{"Turned", {40, 65}, 64, 0.1, at::kBFloat16, -1, false, true},
                    Shape{"SomeTurned", {40, 65}, 32, 0, at::kHalf, 20, true, true}),
    [](const auto& info) { return info.param.name; });

/// Each width of the kernels, with and without dropout, at the borders of tiles up to BERT's longest row.
std::vector<Shape> every_width() {
  const std::vector<int32_t> borders{1, 31, 33, 47, 49, 64, 65, 128, 257, 512};
  std::vector<Shape> shapes;
  for (const int64_t size : {32, 64, 96, 128})
    for (const bool drops : {false, true})
      shapes.push_back({std::to_string(size) + (drops ? "WithDropout" : "WithoutDropout"), borders, size,
                        drops ? 0.1 : 0, drops ? at::kBFloat16 : at::kHalf});
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(TeamOfWidth, ShortAttention, testing::ValuesIn(every_width()),
                         [](const auto& info) { return info.param.name; });

/// The mask [heads, length, length] of each sequence, read from what attention gives for equal scores. Value j is a unit
/// vector of channel j % size, of length 2^(j / size), and so is the context's gradient. So the context's channels count
/// each row's kept keys in binary, and the values' gradients each column's queries.
struct Masks {
  std::vector<at::Tensor> forward, backward;
};

at::Tensor digits(int64_t length, int64_t size) {
  const at::Tensor rows = at::zeros({length, size}, at::kDouble);
  for (int64_t first = 0; first < length; first += size)
    rows.narrow(0, first, std::min(size, length - first)).fill_diagonal_(std::exp2(first / size));
  return rows;
}

/// counts [length, size] → [length, length] of zeros and ones.
at::Tensor decode(const at::Tensor& sums, double share) {
  const int64_t length = sums.size(0), size = sums.size(1);
  const at::Tensor counts = sums.to(at::kCPU, at::kDouble).div(share).round().to(at::kLong);
  const at::Tensor bits = at::zeros({length, length}, at::kLong);
  for (int64_t first = 0; first < length; first += size) {
    const int64_t columns = std::min(size, length - first);
    bits.narrow(1, first, columns).copy_(counts.narrow(1, 0, columns).__rshift__(first / size).remainder(2));
  }
  return bits;
}

Masks masks_of(const Keys& keys, int64_t heads, int64_t size, const DropoutSite& site, at::ScalarType type,
               at::Device place) {
  const int64_t hidden = heads * size, tokens = keys.packing.tokens();
  std::vector<at::Tensor> rows;
  for (const int32_t length : keys.lengths) rows.push_back(digits(length, size).repeat({1, heads}));
  const at::Tensor values = at::cat(rows), qkv = at::zeros({tokens, 3 * hidden}, at::kDouble);
  qkv.narrow(1, 2 * hidden, hidden).copy_(values);
  const at::Tensor input = qkv.to(place, type).set_requires_grad(true);
  const at::Tensor bias = at::zeros({3 * hidden}, input.options().dtype(at::kFloat)).set_requires_grad(true);
  const at::Tensor context =
      attention(input, bias, keys.packing.to(place), heads, site, {}, /*repeatable=*/true);
  context.backward(values.to(place, type));
  Masks masks;
  const double scale = DropoutRate::from_probability(site.probability).scale();
  for (size_t s = 0; s < keys.lengths.size(); ++s)
    for (int64_t head = 0; head < heads; ++head) {
      const auto part = [&](const at::Tensor& x, int64_t column) {
        return x.narrow(0, keys.packing.host_offsets[s], keys.lengths[s])
            .narrow(1, column + head * size, size)
            .detach();
      };
      masks.forward.push_back(decode(part(context, 0), scale / keys.lengths[s]));
      masks.backward.push_back(decode(part(input.grad(), 2 * hidden), scale / keys.lengths[s]).t());
    }
  return masks;
}

void expect_masks_of_the_processor(const std::vector<int32_t>& lengths, int64_t heads, int64_t size) {
  const DropoutSite site{0.3, Purpose::dropout_attention, 3};
  const Keys keys = make_keys(lengths);
  const Masks processor = masks_of(keys, heads, size, site, at::kFloat, at::kCPU);
  const TeamKernels team;
  const Masks found = masks_of(keys, heads, size, site, at::kHalf, team.place());
  for (size_t i = 0; i < found.forward.size(); ++i) {
    const size_t s = i / static_cast<size_t>(heads);
    const at::Tensor expected =
        attention_multipliers(lengths[s], static_cast<uint32_t>(i) % static_cast<uint32_t>(heads),
                              static_cast<uint64_t>(keys.packing.host_draw_ids[s]), site)
            .gt(0)
            .to(at::kLong);
    for (const Masks* masks : {&processor, &found}) {
      EXPECT_TRUE(at::equal(masks->forward[i], expected))
          << "forward, " << lengths[s] << ", heads of " << size;
      EXPECT_TRUE(at::equal(masks->backward[i], expected))
          << "backward, " << lengths[s] << ", heads of " << size;
    }
  }
}

TEST(ShortAttentionsMasks, AreTheProcessorsBitForBitInBothPasses) {
  for (const int64_t size : {32, 64, 96, 128}) expect_masks_of_the_processor({1, 5, 16, 70}, 2, size);
  expect_masks_of_the_processor({512}, 1, 64);
}

TEST(ShortAttentions, ChoiceDependsOnTheCardTypeAndHead) {
  const auto choice = [](AttentionNeeds needs) { return device::choose_attention(needs); };
  const auto narrow = [](int capability) {
    return AttentionNeeds{.capability = capability, .type = at::kBFloat16};
  };
  EXPECT_EQ(choice(narrow(80)), AttentionKernels::flash);
  EXPECT_EQ(choice(narrow(120)), AttentionKernels::flash);
  EXPECT_EQ(choice(narrow(75)), AttentionKernels::tiles);
  AttentionNeeds needs = narrow(75);
  needs.type = at::kHalf;
  EXPECT_EQ(choice(needs), AttentionKernels::tensor_cores);
  needs.capability = 70;
  EXPECT_EQ(choice(needs), AttentionKernels::tiles);
  needs = narrow(90);
  needs.repeatable = true;
  EXPECT_EQ(choice(needs), AttentionKernels::tensor_cores);
  needs = narrow(90);
  needs.some_queries = needs.window = true;
  EXPECT_EQ(choice(needs), AttentionKernels::tensor_cores);
  needs = narrow(90);
  needs.head_size = 256;
  EXPECT_EQ(choice(needs), AttentionKernels::flash);
  needs.head_size = 257;
  EXPECT_EQ(choice(needs), AttentionKernels::tiles);
  needs = narrow(90);
  needs.head_size = 12;
  EXPECT_EQ(choice(needs), AttentionKernels::tensor_cores);
  needs = narrow(90);
  needs.turned = needs.repeatable = true;
  EXPECT_EQ(choice(needs), AttentionKernels::tensor_cores);
  needs.head_size = 48;
  EXPECT_EQ(choice(needs), AttentionKernels::tiles);
  needs.repeatable = false;
  EXPECT_EQ(choice(needs), AttentionKernels::flash);
  needs.head_size = 24;  // half a head is no whole pack for the kernel that turns it
  EXPECT_EQ(choice(needs), AttentionKernels::tiles);
  needs.head_size = 48;
  needs.score_terms = true;
  EXPECT_EQ(choice(needs), AttentionKernels::tiles);
  needs = narrow(90);
  needs.type = at::kFloat;
  EXPECT_EQ(choice(needs), AttentionKernels::tiles);
  EXPECT_EQ(device::describe_attention(90),
            "attention of 16 bits by FlashAttention, with --deterministic by our kernels on tensor cores");
  EXPECT_EQ(device::describe_attention(75), "attention of fp16 on tensor cores, of bf16 without them");
  const device::PreferAttention own(AttentionKernels::tensor_cores);
  EXPECT_EQ(choice(narrow(90)), AttentionKernels::tensor_cores);
  EXPECT_EQ(choice(narrow(75)), AttentionKernels::tiles) << "which cannot be served by what is preferred";
}

}  // namespace
}  // namespace funicular::nn::short_attention_tests
