// The fused operations, attention, normalisation and embeddings, against the same mathematics written with plain LibTorch
// operations in float64, dropout included: values and all gradients.

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "formulas.h"
#include "funicular/base/error.h"
#include "funicular/nn/functional.h"
#include "funicular/nn/kernels.h"
#include "funicular/nn/row_operations.h"
#include "funicular/nn/row_subset.h"
#include "funicular/nn/workspace.h"
#include "with_kernels.h"

namespace funicular::nn {
namespace {

class FusedOperations : public testing::TestWithParam<std::tuple<double, KernelKind>> {
 protected:
  double probability() const { return std::get<0>(GetParam()); }

  /// What the free functions of these names make, where the kernels read it.
  at::Tensor random(at::IntArrayRef shape, uint64_t seed) const {
    return nn::random(shape, seed, kernels_.place());
  }
  Keys make_keys(std::vector<int32_t> lengths) const {
    return nn::make_keys(std::move(lengths), kernels_.place());
  }
  at::Tensor range(int64_t count) const {
    return at::arange(count, at::TensorOptions(at::kLong).device(kernels_.place()));
  }
  /// Tables, gamma and beta of embeddings of this width.
  std::vector<at::Tensor> embedding_weights(int64_t width) const {
    return {random({50, width}, 1), random({40, width}, 2), random({2, width}, 3), random({width}, 4),
            random({width}, 5)};
  }

 private:
  const WithKernels kernels_{std::get<1>(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(, FusedOperations,
                         testing::Combine(testing::Values(0.0, 0.1, 0.5),
                                          testing::Values(KernelKind::processor, KernelKind::team)),
                         [](const auto& info) {
                           const int percent = static_cast<int>(std::get<0>(info.param) * 100);
                           return name_of(std::get<1>(info.param)) + "Dropout" + std::to_string(percent);
                         });

TEST_P(FusedOperations, AttentionEqualsItsFormulaWithGradients) {
  const Keys keys = make_keys({1, 7, 64, 65, 130, 16});
  const DropoutSite site{probability(), Purpose::dropout_attention, 3};
  for (const int64_t size : {4, 8, 10, 32}) {
    const int64_t heads = 3;
    const at::Tensor mine = random({keys.packing.tokens(), 3 * heads * size}, 1),
                     theirs = mine.detach().clone().set_requires_grad(true);
    const at::Tensor bias = random({3 * heads * size}, 3),
                     bias2 = bias.detach().clone().set_requires_grad(true);
    const at::Tensor upstream = random({keys.packing.tokens(), heads * size}, 2).detach();
    const at::Tensor a = attention(mine, bias, keys.packing, heads, site);
    const at::Tensor b = plain_attention(theirs + bias2, keys, heads, site);
    a.backward(upstream);
    b.backward(upstream);
    EXPECT_LT(difference(a, b), 1e-13) << size;
    EXPECT_LT(difference(mine.grad(), theirs.grad()), 1e-12) << size;
    EXPECT_LT(difference(bias.grad(), bias2.grad()), 1e-12) << size;
  }
}

/// Every third token; of the second sequence none, of the fifth all.
at::Tensor some_rows(const Packing& packing) {
  std::vector<int64_t> rows;
  for (size_t s = 0; s + 1 < packing.host_offsets.size(); ++s)
    for (int64_t r = packing.host_offsets[s]; r < packing.host_offsets[s + 1]; ++r)
      if (s == 4 || (s != 1 && r % 3 == 0)) rows.push_back(r);
  return at::tensor(rows, at::kLong);
}

TEST_P(FusedOperations, QueriesOfSomeRowsGiveTheseRowsOfTheWholeAttention) {
  const Keys keys = make_keys({1, 7, 64, 65, 200, 16});
  const DropoutSite site{probability(), Purpose::dropout_attention, 3};
  const at::Tensor rows = some_rows(keys.packing);
  for (const auto& [type, bound] :
       {std::pair{at::kDouble, 1e-13}, {at::kFloat, 2e-6}, {at::kBFloat16, unit_roundoff(at::kBFloat16)}}) {
    for (const int64_t size : {8, 10}) {
      const at::Tensor wide = random({keys.packing.tokens(), 9 * size}, 1).detach();
      const at::Tensor some = wide.to(type).clone().set_requires_grad(true),
                       all = wide.to(type).clone().set_requires_grad(true);
      const at::ScalarType vectors = type == at::kDouble ? at::kDouble : at::kFloat;
      const at::Tensor bias = random({9 * size}, 3).detach().to(vectors).set_requires_grad(true),
                       bias2 = bias.detach().clone().set_requires_grad(true);
      const at::Tensor a = attention(some, bias, keys.packing, 3, site, select_rows(keys.packing, rows),
                                     /*repeatable=*/true);
      const at::Tensor b = attention(all, bias2, keys.packing, 3, site, {}, /*repeatable=*/true)
                               .index_select(0, rows.to(all.device()));
      EXPECT_TRUE(at::equal(a, b)) << type;  // no query sees another
      const at::Tensor upstream = random({rows.size(0), 3 * size}, 2).detach().to(type);
      a.backward(upstream);
      b.backward(upstream);
      EXPECT_LT(difference(some.grad().to(at::kDouble), all.grad().to(at::kDouble)), bound) << type;
      EXPECT_LT(difference(bias.grad(), bias2.grad()), bound) << type;
    }
  }
}

/// Output and gradients of attention in bfloat16, [T, 2H].
at::Tensor narrow_attention(const at::Tensor& qkv, const Packing& packing, const DropoutSite& site) {
  const at::Tensor x = qkv.to(at::kBFloat16).clone().set_requires_grad(true);
  const at::Tensor bias = random({qkv.size(1)}, 3).detach().to(at::kFloat);
  const at::Tensor out = attention(x, bias, packing, 2, site);
  out.backward(random({qkv.size(0), out.size(1)}, 5).detach().to(at::kBFloat16));
  return at::cat({out.detach(), x.grad()}, 1);
}

TEST_P(FusedOperations, ShortSequencesAreAttendedTogetherAsAlone) {
  if (!random({1}, 1).is_cpu() || !kernels<BFloat16>().attention_short_forward)
    GTEST_SKIP() << "this processor has no AMX: each sequence is attended to by itself";
  // Odd and even, whole tiles, one that fills the rows that are left, and long ones between them.
  const Keys keys = make_keys({3, 10, 1, 17, 5, 31, 32, 2, 40, 16, 16, 1, 1, 33, 9, 8, 7, 6});
  const DropoutSite site{probability(), Purpose::dropout_attention, 3};
  for (const int64_t size : {16, 32, 20}) {
    const at::Tensor qkv = random({keys.packing.tokens(), 6 * size}, 1).detach();
    const at::Tensor together = narrow_attention(qkv, keys.packing, site);
    for (size_t s = 0; s < keys.lengths.size(); ++s) {
      const int64_t first = keys.packing.host_offsets[s], length = keys.lengths[s];
      // Alone among long ones, with its own rows of what goes in.
      const Packing alone =
          Packing::from_lengths({64, keys.lengths[s], 64}, {100, static_cast<int64_t>(s), 101},
                                {1, keys.packing.host_draw_ids[s], 2}, {kSeed, true});
      const at::Tensor x =
          at::cat({qkv.narrow(0, 0, 64), qkv.narrow(0, first, length), qkv.narrow(0, 64, 64)});
      const at::Tensor upstream = random({keys.packing.tokens(), 2 * size}, 5).detach().to(at::kBFloat16);
      const at::Tensor leaf = x.to(at::kBFloat16).clone().set_requires_grad(true);
      const at::Tensor out = attention(leaf, random({6 * size}, 3).detach().to(at::kFloat), alone, 2, site);
      out.narrow(0, 64, length).backward(upstream.narrow(0, first, length));
      const at::Tensor expected = at::cat({out.detach(), leaf.grad()}, 1).narrow(0, 64, length);
      EXPECT_TRUE(at::equal(together.narrow(0, first, length), expected)) << length << ' ' << size;
    }
  }
}

TEST(RowBlocks, AreEnoughForThreadsAndNotTooMany) {
  for (const int64_t rows : {0, 1, 8, 30, 64, 300, 361, 1253, 1793, 2100, 100'000}) {
    const int64_t size = rows_of_a_block(rows), blocks = (rows + size - 1) / size;
    EXPECT_GE(size, 8) << rows;
    EXPECT_LE(blocks, 64) << rows;
    if (rows >= 64) {
      EXPECT_GE(blocks, 8) << rows;
    }
  }
  // Two threads have equal shares of what CoLA's steps have.
  EXPECT_EQ(rows_of_a_block(300), 19);
  EXPECT_EQ((300 + 18) / 19 % 2, 0);
}

TEST(Workspace, GivesEachItsOwnLines) {
  const Workspace::Sizes sizes{100, 65, 3};
  const Workspace workspace(sizes);
  std::vector<unsigned char*> parts{workspace.shared()};
  for (int64_t w = 0; w < 3; ++w) parts.push_back(workspace.of(w));
  for (unsigned char* const part : parts) EXPECT_EQ(reinterpret_cast<uintptr_t>(part) % 64, 0u);
  EXPECT_GE(parts[1] - parts[0], 100);
  EXPECT_GE(parts[2] - parts[1], 65);
  EXPECT_GE(parts[3] - parts[2], 65);
  EXPECT_EQ(sizes.total(), 64 + 128 + 3 * 128);
}

TEST(RowSubset, NamesRowsThatDoNotAscendOrAreNotInTheBatch) {
  const Keys keys = make_keys({3, 4});
  const auto select = [&](std::vector<int64_t> rows) {
    return select_rows(keys.packing, at::tensor(rows, at::kLong));
  };
  const RowSubset subset = select({1, 2, 6});
  EXPECT_EQ(subset.offsets, (std::vector<int64_t>{0, 2, 3}));
  EXPECT_TRUE(at::equal(subset.keys.positions, at::tensor({1, 2, 3}, at::kInt)));
  EXPECT_EQ(select({}).offsets, (std::vector<int64_t>{0, 0, 0}));
  EXPECT_THROW(select({2, 1}), InputError);
  EXPECT_THROW(select({2, 2}), InputError);
  EXPECT_THROW(select({4, 1}), InputError);
  EXPECT_THROW(select({-1}), InputError);
  EXPECT_THROW(select({7}), InputError);
  EXPECT_THROW(select_rows(keys.packing, at::tensor({1, 2}, at::kInt)), InputError);
}

TEST_P(FusedOperations, ResidualNormEqualsItsFormulaWithGradients) {
  for (const int64_t width : {6, 39, 128, 200, 776, 1030}) {
    const bool narrow = width < 256;
    // A team of a GPU has several rows in the forward pass, too, if there are more than 1,024.
    const Keys keys = make_keys({5, 1, width == 6 ? 1031 : narrow ? 130 : 2, narrow ? 64 : 1});
    const int64_t tokens = keys.packing.tokens();
    const DropoutSite site{probability(), Purpose::dropout_output, 2};
    std::vector<at::Tensor> mine = {random({tokens, width}, 1), random({width}, 2),
                                    random({tokens, width}, 3), random({width}, 4), random({width}, 5)},
                            theirs;
    for (const at::Tensor& t : mine) theirs.push_back(t.detach().clone().set_requires_grad(true));
    const at::Tensor upstream = random({tokens, width}, 6).detach();
    const at::Tensor a =
        residual_norm(mine[0], mine[1], mine[2], {mine[3], mine[4], 1e-5}, keys.packing, site);
    at::Tensor x = theirs[0] + theirs[1];
    if (site.probability > 0) x = x * row_multipliers(keys.packing, width, site);
    const at::Tensor b = at::layer_norm(theirs[2] + x, {width}, theirs[3], theirs[4], 1e-5);
    a.backward(upstream);
    b.backward(upstream);
    EXPECT_LT(difference(a, b), 1e-12) << width;
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_LT(difference(mine[i].grad(), theirs[i].grad()), 1e-11) << width << " input " << i;
  }
}

TEST_P(FusedOperations, NormsWithoutBiasEqualTheirFormulaWithAndWithoutAResidual) {
  const Keys keys = make_keys({5, 1, 34});
  const int64_t tokens = keys.packing.tokens(), width = 39;
  const DropoutSite site{probability(), Purpose::dropout_output, 2};
  for (const bool beside : {false, true}) {
    const std::vector<at::Tensor> mine{random({tokens, width}, 1), random({tokens, width}, 2),
                                       random({width}, 3), random({width}, 4)};
    std::vector<at::Tensor> theirs;
    for (const at::Tensor& t : mine) theirs.push_back(t.detach().clone().set_requires_grad(true));
    const at::Tensor upstream = random({tokens, width}, 6).detach();
    const at::Tensor a = residual_norm(mine[0], {}, beside ? mine[1] : at::Tensor(), {mine[2], mine[3], 1e-5},
                                       keys.packing, site);
    at::Tensor x = theirs[0];
    if (site.probability > 0) x = x * row_multipliers(keys.packing, width, site);
    const at::Tensor b = at::layer_norm(beside ? theirs[1] + x : x, {width}, theirs[2], theirs[3], 1e-5);
    a.backward(upstream);
    b.backward(upstream);
    EXPECT_LT(difference(a, b), 1e-12) << beside;
    for (const size_t i : {0, 1, 2, 3})
      if (i != 1 || beside)
        EXPECT_LT(difference(mine[i].grad(), theirs[i].grad()), 1e-11) << beside << " input " << i;
    EXPECT_TRUE(at::equal(mine[0], theirs[0])) << "the input has changed";
  }
}

/// dropout(layer_norm(word[ids] + position[positions] + type[types])) by LibTorch.
at::Tensor embedding_formula(const std::vector<at::Tensor>& w, const at::Tensor& ids, const at::Tensor& types,
                             const Packing& packing, const DropoutSite& site, int64_t padding = -1) {
  const int64_t width = w[0].size(1);
  const at::Tensor sum = at::embedding(w[0], ids, padding) +
                         at::embedding(w[1], packing.positions.to(at::kLong)) + at::embedding(w[2], types);
  const at::Tensor y = at::layer_norm(sum, {width}, w[3], w[4], 1e-12);
  return site.probability > 0 ? y * row_multipliers(packing, width, site) : y;
}

/// Ids have few rows, a type has more than the kernels for GPUs add up together.
TEST_P(FusedOperations, EmbeddingsEqualTheirFormulaWithGradients) {
  const Keys keys = make_keys({9, 33, 2, 40, 40, 40, 40});
  const int64_t tokens = keys.packing.tokens();
  const DropoutSite site{probability(), Purpose::dropout_embedding, 0};
  const at::Tensor ids = range(tokens) * 7 % 11 + 3, types = range(tokens).ge(190).to(at::kLong);
  for (const int64_t width : {6, 20, 39, 200}) {
    const std::vector<at::Tensor> mine = embedding_weights(width);
    std::vector<at::Tensor> theirs;
    for (const at::Tensor& t : mine) theirs.push_back(t.detach().clone().set_requires_grad(true));
    const at::Tensor upstream = random({tokens, width}, 6).detach();
    const at::Tensor a = embed({mine[0], mine[1], mine[2], /*padding=*/5}, ids, types,
                               {mine[3], mine[4], 1e-12}, keys.packing, site);
    const at::Tensor b = embedding_formula(theirs, ids, types, keys.packing, site, /*padding=*/5);
    a.backward(upstream);
    b.backward(upstream);
    EXPECT_LT(difference(a, b), 1e-12) << width;
    for (size_t i = 0; i < mine.size(); ++i)
      EXPECT_LT(difference(mine[i].grad(), theirs[i].grad()), 1e-11) << width << " input " << i;
  }
}

/// In bfloat16 the result is that of float64 on the same numbers, but for the rounding of what is stored: the
/// sum, which the normalisation magnifies, and the result.
TEST_P(FusedOperations, EmbeddingsIn16BitsFollowTheirFormula) {
  const Keys keys = make_keys({9, 33, 2});
  const int64_t tokens = keys.packing.tokens(), width = 200;
  const DropoutSite site{probability(), Purpose::dropout_embedding, 0};
  const at::Tensor ids = range(tokens) * 7 % 11 + 3, types = range(tokens) % 2;
  std::vector<at::Tensor> mine, theirs;
  for (const at::Tensor& t : embedding_weights(width)) {
    const at::ScalarType type = t.dim() == 2 ? at::kBFloat16 : at::kFloat;
    mine.push_back(t.detach().to(type).set_requires_grad(true));
    theirs.push_back(mine.back().detach().to(at::kDouble).set_requires_grad(true));
  }
  const at::Tensor upstream = random({tokens, width}, 6).detach().to(at::kBFloat16);
  const at::Tensor a =
      embed({mine[0], mine[1], mine[2], -1}, ids, types, {mine[3], mine[4], 1e-12}, keys.packing, site);
  const at::Tensor b = embedding_formula(theirs, ids, types, keys.packing, site);
  a.backward(upstream);
  b.backward(upstream.to(at::kDouble));
  const double bound =
      2 * unit_roundoff(at::kBFloat16);  // some 0.4 √n of them after n roundings: see distance
  EXPECT_LT(difference(a.to(at::kDouble), b), bound);
  for (size_t i = 0; i < mine.size(); ++i)
    EXPECT_LT(difference(mine[i].grad().to(at::kDouble), theirs[i].grad()), bound) << "input " << i;
}

TEST(Embeddings, GradientsOfRowsAreTheDenseOnes) {
  const Keys keys = make_keys({9, 33, 2});
  const int64_t tokens = keys.packing.tokens(), width = 20;
  const at::Tensor ids = (at::arange(tokens) * 7) % 11 + 3, types = at::arange(tokens) % 2;
  const NormWeights norm{random({width}, 4), random({width}, 5), 1e-12};
  const at::Tensor position = random({40, width}, 2), type = random({2, width}, 3);
  at::Tensor words[2] = {random({50, width}, 1), random({50, width}, 1)};
  const auto learn = [&](int side, const at::Tensor& upstream) {
    embed({words[side], position, type, /*padding=*/5, /*row_gradients=*/side == 1}, ids, types, norm,
          keys.packing, {})
        .backward(upstream);
  };
  for (const int side : {0, 1}) learn(side, random({tokens, width}, 6).detach());
  const at::Tensor rows = words[1].grad();
  ASSERT_TRUE(rows.is_sparse() && rows.is_coalesced());
  EXPECT_TRUE(torch::equal(rows._indices().view({-1}), torch::tensor({3, 4, 6, 7, 8, 9, 10, 11, 12, 13})));
  EXPECT_TRUE(torch::equal(rows.to_dense(), words[0].grad()));
  // The second backward pass adds to it.
  for (const int side : {0, 1}) learn(side, random({tokens, width}, 7).detach());
  EXPECT_FALSE(words[1].grad().is_sparse());
  EXPECT_TRUE(torch::equal(words[1].grad(), words[0].grad()));
}

}  // namespace
}  // namespace funicular::nn
