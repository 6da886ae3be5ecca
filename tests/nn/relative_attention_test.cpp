// Attention whose scores know the distance of query and key, against its formula in float64, with all gradients: of all
// queries and of some, with and without dropout, by the kernels of the processor and by teams of threads.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "formulas.h"
#include "funicular/base/error.h"
#include "funicular/nn/disentangled.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/row_subset.h"
#include "tests/team_kernels.h"

namespace funicular::nn {
namespace {

constexpr int64_t kHeads = 2, kSize = 12, kPositions = 300;

/// A tensor that learns, in float64 on the processor.
at::Tensor learning(at::IntArrayRef shape, uint64_t seed) {
  return random(shape, seed).detach().to(at::kDouble).set_requires_grad(true);
}

/// The same numbers in another type and place.
at::Tensor copy_of(const at::Tensor& x, at::Device place, at::ScalarType type) {
  return x.detach().to(place, type, false, true).set_requires_grad(true);
}

/// The first token of each sequence and every fifth, none of each third sequence.
at::Tensor rows_that_ask(const Keys& keys) {
  std::vector<int64_t> rows;
  for (size_t s = 0; s < keys.lengths.size(); ++s)
    for (int64_t i = 0; s % 3 != 2 && i < keys.lengths[s]; i += 5)
      rows.push_back(keys.packing.host_offsets[s] + i);
  return at::tensor(rows, at::kLong);
}

class RelativeAttention : public testing::TestWithParam<std::tuple<double, bool, bool>> {
 protected:
  const bool some_ = std::get<1>(GetParam());
  const TeamKernels team_{std::get<2>(GetParam())};
  const DropoutSite site_{std::get<0>(GetParam()), Purpose::dropout_attention, 3};
  const Keys keys_ = make_keys(std::get<2>(GetParam()) ? std::vector<int32_t>{2, 1, 31, 65, 140}
                                                       : std::vector<int32_t>{2, 1, 31, 65, 140, 300, 16});
  const at::Tensor rows_ = rows_that_ask(keys_);

  at::Tensor asked(const at::Tensor& all) const { return some_ ? all.index_select(0, rows_) : all; }
  std::optional<RowSubset> subset(const Packing& packing) const {
    return some_ ? std::optional(select_rows(packing, rows_)) : std::nullopt;
  }

  /// Compares the results of `attend(learning tensors, packing)` with those of the formula of the same tensors.
  void check(const std::vector<at::Tensor>& inputs, const at::Tensor& expected,
             const std::function<at::Tensor(const std::vector<at::Tensor>&, const Packing&)>& attend) const {
    const at::Tensor upstream = random({expected.size(0), expected.size(1)}, 9).detach().to(at::kDouble);
    expected.backward(upstream);
    for (const auto& [type, bound] :
         {std::pair{at::kDouble, 1e-12}, {at::kFloat, 2e-5}, {at::kBFloat16, 3e-2}}) {
      SCOPED_TRACE(c10::toString(type));
      std::vector<at::Tensor> own;
      for (size_t i = 0; i < inputs.size();
           ++i)  // but the first, which is [tokens, 3H], they have the type of sums
        own.push_back(copy_of(inputs[i], team_.place(), i > 0 && type != at::kDouble ? at::kFloat : type));
      const at::Tensor found = attend(own, keys_.packing.to(team_.place()));
      EXPECT_LT(distance(found.detach().cpu().to(at::kDouble), expected.detach()), bound);
      found.backward(upstream.to(found.device(), found.scalar_type()));
      for (size_t i = 0; i < own.size(); ++i)
        EXPECT_LT(distance(own[i].grad().cpu().to(at::kDouble), inputs[i].grad()), 2 * bound)
            << "input " << i;
    }
  }
};

TEST_P(RelativeAttention, WithANumberForEachDistanceEqualsItsFormula) {
  const at::Tensor rows = bucket_rows(kPositions, 32, 128);
  const std::vector<at::Tensor> in = {learning({keys_.packing.tokens(), 3 * kHeads * kSize}, 1),
                                      learning({3 * kHeads * kSize}, 2), learning({32, kHeads}, 3)};
  const at::Tensor whole = plain_attention(
      in[0] + in[1], keys_, kHeads, site_, 1, -1, [&](int64_t head, const at::Tensor& q, const at::Tensor&) {
        const at::Tensor places = at::arange(q.size(0), at::kLong);
        const at::Tensor ahead = places.unsqueeze(0) - places.unsqueeze(1);
        return in[2].select(1, head).index({rows.index({ahead + kPositions - 1})});
      });
  check(in, asked(whole), [&](const std::vector<at::Tensor>& own, const Packing& packing) {
    return attention(own[0], own[1], packing, kHeads, site_, subset(packing), /*repeatable=*/true,
                     {.distance_table = own[2], .distance_rows = rows.to(own[2].device())});
  });
}

TEST_P(RelativeAttention, WithVectorsOfDistancesEqualsItsFormula) {
  const int64_t buckets = 64, longest = keys_.packing.longest();
  const at::Tensor rows =
      disentangled_rows(kPositions, buckets, 200).narrow(0, kPositions - longest, 2 * longest - 1);
  const std::vector<at::Tensor> in = {learning({keys_.packing.tokens(), 3 * kHeads * kSize}, 1),
                                      learning({3 * kHeads * kSize}, 2),
                                      learning({buckets, 3 * kHeads * kSize}, 3)};
  const double stretch = 1 / std::sqrt(3.0), scale = stretch / std::sqrt(static_cast<double>(kSize));
  const at::Tensor whole = plain_attention(
      in[0] + in[1], keys_, kHeads, site_, stretch, -1,
      [&](int64_t head, const at::Tensor& q, const at::Tensor& k) {
        const at::Tensor places = at::arange(q.size(0), at::kLong);
        const at::Tensor bucket = rows.index({places.unsqueeze(1) - places.unsqueeze(0) + longest - 1});
        const auto of_bucket = [&](int64_t part) {  // [n, n, d]
          return in[2].narrow(1, (part * kHeads + head) * kSize, kSize).index({bucket});
        };
        return scale * ((q.unsqueeze(1) * of_bucket(1)).sum(2) + (k.unsqueeze(0) * of_bucket(0)).sum(2));
      });
  check(in, asked(whole), [&](const std::vector<at::Tensor>& own, const Packing& packing) {
    const at::Tensor projected = own[2].to(own[0].scalar_type());
    return disentangled_attention(own[0], own[1], {projected, rows.to(own[0].device())}, packing, {0, kHeads},
                                  site_, subset(packing), team_.place().is_cpu());
  });
}

INSTANTIATE_TEST_SUITE_P(, RelativeAttention,
                         testing::Combine(testing::Values(0.0, 0.1), testing::Bool(), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<2>(info.param) ? "Team" : "Processor") +
                                  (std::get<1>(info.param) ? "SomeQueries" : "AllQueries") +
                                  (std::get<0>(info.param) > 0 ? "WithDropout" : "WithoutDropout");
                         });

/// Raffel et al. 2020: half of the 32 buckets for keys behind the query, eight of each half for single distances.
TEST(RelativeBuckets, HoldSingleDistancesThenPowers) {
  const at::Tensor rows = bucket_rows(kPositions, 32, 128);
  const auto bucket = [&](int64_t ahead) { return rows[ahead + kPositions - 1].item<int64_t>(); };
  const std::vector<std::pair<int64_t, int64_t>> expected = {
      {0, 0},     {-1, 1},    {-7, 7}, {-8, 8}, {-11, 8}, {-12, 9}, {-15, 9}, {-17, 10}, {-63, 13}, {-65, 14},
      {-127, 15}, {-299, 15}, {1, 17}, {7, 23}, {8, 24},  {12, 25}, {65, 30}, {127, 31}, {299, 31}};
  for (const auto& [ahead, number] : expected) EXPECT_EQ(bucket(ahead), number) << ahead;
}

/// He et al. 2021, with 256 buckets of each direction as in DeBERTa-v3: single ones up to 128.
TEST(RelativeBuckets, OfVectorsAreSymmetricAroundTheMiddle) {
  const at::Tensor rows = disentangled_rows(700, 512, 512);
  const auto bucket = [&](int64_t behind) { return rows[behind + 699].item<int64_t>(); };
  for (const auto& [behind, number] :
       {std::pair{0, 256}, {1, 257}, {128, 384}, {129, 385}, {255, 448}, {511, 511}, {600, 511}}) {
    EXPECT_EQ(bucket(behind), number) << behind;
    if (behind < 512) {
      EXPECT_EQ(bucket(-behind), 512 - number) << behind;
    }
  }
  EXPECT_EQ(bucket(-600), 0);
  EXPECT_TRUE((rows.diff() >= 0).all().item<bool>());
}

}  // namespace
}  // namespace funicular::nn
