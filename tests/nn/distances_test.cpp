// Claims about how far a student's activations are from a teacher's: against the formulas written out, with
// gradients by autograd, in float64.

#include "funicular/nn/distances.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <vector>

#include "funicular/base/error.h"
#include "with_kernels.h"

namespace funicular::nn::distances_tests {
namespace {

Packing packing_of(const std::vector<int32_t>& lengths) {
  const std::vector<int64_t> ids(lengths.size());
  return Packing::from_lengths(lengths, ids, ids, {});
}

torch::Tensor random(std::vector<int64_t> shape, int64_t seed) {
  torch::manual_seed(seed);
  return torch::randn(shape, torch::kDouble);
}

/// [heads, n, d] of part 0, 1 or 2.
torch::Tensor heads_of(const torch::Tensor& packed, int64_t begin, int64_t count, int64_t part,
                       int64_t heads) {
  const int64_t width = packed.size(1) / 3;
  return packed.slice(0, begin, begin + count)
      .slice(1, part * width, (part + 1) * width)
      .reshape({count, heads, width / heads})
      .transpose(0, 1);
}

torch::Tensor products(const torch::Tensor& a, const torch::Tensor& b) {
  return torch::matmul(a, b.transpose(1, 2)) / std::sqrt(static_cast<double>(a.size(2)));
}

torch::Tensor plain_scores(const torch::Tensor& s, const torch::Tensor& t, const Packing& packing,
                           int64_t heads, bool /*one_length*/ = false) {
  torch::Tensor total = torch::zeros({}, torch::kDouble);
  for (int64_t i = 0; i < packing.sequences(); ++i) {
    const int64_t begin = packing.host_offsets[size_t(i)],
                  count = packing.host_offsets[size_t(i) + 1] - begin;
    const auto of = [&](const torch::Tensor& x) {
      return products(heads_of(x, begin, count, 0, heads), heads_of(x, begin, count, 1, heads));
    };
    total = total + (of(s) - of(t)).square().sum();
  }
  return total;
}

torch::Tensor plain_relations(const torch::Tensor& s, const torch::Tensor& t, const Packing& packing,
                              int64_t heads, bool /*one_length*/ = false) {
  torch::Tensor total = torch::zeros({}, torch::kDouble);
  for (int64_t i = 0; i < packing.sequences(); ++i) {
    const int64_t begin = packing.host_offsets[size_t(i)],
                  count = packing.host_offsets[size_t(i) + 1] - begin;
    for (int64_t part = 0; part < 3; ++part) {
      const auto of = [&](const torch::Tensor& x) {
        const torch::Tensor one = heads_of(x, begin, count, part, heads);
        return products(one, one);
      };
      total = total + torch::kl_div(of(s).log_softmax(-1), of(t).softmax(-1), torch::Reduction::Sum);
    }
  }
  return total;
}

using Distance = torch::Tensor (*)(const torch::Tensor&, const torch::Tensor&, const Packing&, int64_t, bool);

/// The value, and the gradient of 0.7 times it.
std::pair<double, torch::Tensor> with_gradient(Distance distance, const torch::Tensor& student,
                                               const torch::Tensor& teacher, const Packing& packing,
                                               int64_t heads, bool one_length = false) {
  const torch::Tensor leaf = student.detach().clone().requires_grad_();
  const torch::Tensor value = distance(leaf, teacher, packing, heads, one_length);
  (value * 0.7).backward();
  return {value.item<double>(), leaf.grad()};
}

void expect_plain(Distance ours, Distance plain, at::ScalarType type, double bound, bool one_length = false) {
  // One of 300 tokens is more than a tile of the processor; one of one token; some of similar lengths, which a GPU takes together.
  const Packing packing = packing_of({5, 1, 300, 17, 12, 9, 23});
  const int64_t heads = 6;
  const torch::Tensor student = random({packing.tokens(), 3 * 24}, 1).to(type);
  const torch::Tensor teacher = random({packing.tokens(), 3 * 60}, 2).to(type);
  const auto [expected, slope] =
      with_gradient(plain, student.to(torch::kDouble), teacher.to(torch::kDouble), packing, heads);
  for (const KernelKind kind : {KernelKind::processor, KernelKind::team}) {
    SCOPED_TRACE(name_of(kind));
    const WithKernels kernels(kind);
    const at::Device place = kernels.place();
    const auto [value, placed] =
        with_gradient(ours, student.to(place), teacher.to(place), packing.to(place), heads, one_length);
    EXPECT_NEAR(value / expected, 1, bound);
    EXPECT_EQ(placed.scalar_type(), type);
    const torch::Tensor gradient = placed.to(at::kCPU, torch::kDouble);
    EXPECT_LT((gradient - slope).norm().item<double>() / slope.norm().item<double>(), bound);
  }
}

/// Of 24 heads a tile of a GPU, too, holds some of the 900 queries.
TEST(ScoreDistance, OfMoreThanATileOfAGpuIsThatOfBothModelsScores) {
  const WithKernels kernels(KernelKind::team);
  const at::Device place = kernels.place();
  const Packing packing = packing_of({900});
  const torch::Tensor student = random({900, 3 * 24}, 1), teacher = random({900, 3 * 48}, 2);
  const auto [value, gradient] =
      with_gradient(score_distance, student.to(place), teacher.to(place), packing.to(place), 24);
  const auto [expected, slope] = with_gradient(plain_scores, student, teacher, packing, 24);
  EXPECT_NEAR(value / expected, 1, 1e-12);
  EXPECT_LT((gradient.cpu() - slope).norm().item<double>() / slope.norm().item<double>(), 1e-12);
}

TEST(ScoreDistance, IsThatOfBothModelsScores) {
  expect_plain(score_distance, plain_scores, torch::kDouble, 1e-13);
  expect_plain(score_distance, plain_scores, torch::kFloat, 3e-6);
  expect_plain(score_distance, plain_scores, torch::kBFloat16, 4e-3);
  expect_plain(score_distance, plain_scores, torch::kHalf, 1e-3);
}

TEST(RelationDivergence, IsThatOfBothModelsRelations) {
  expect_plain(relation_divergence, plain_relations, torch::kDouble, 1e-12);
  expect_plain(relation_divergence, plain_relations, torch::kFloat, 1e-5);
  expect_plain(relation_divergence, plain_relations, torch::kBFloat16, 6e-3);
}

/// All sequences are padded to the longest one.
TEST(ScoreDistance, OfOneLengthIsTheSame) {
  expect_plain(score_distance, plain_scores, torch::kDouble, 1e-13, /*one_length=*/true);
  expect_plain(relation_divergence, plain_relations, torch::kDouble, 1e-12, /*one_length=*/true);
  // 20 sequences that are padded to 1000 tokens make two runs.
  const WithKernels kernels(KernelKind::team);
  std::vector<int32_t> lengths(20, 2);
  lengths[3] = 1000;
  const Packing packing = packing_of(lengths).to(kernels.place());
  const torch::Tensor student = random({packing.tokens(), 3 * 300}, 1).to(kernels.place()),
                      teacher = random({packing.tokens(), 3 * 8}, 2).to(kernels.place());
  const double found = score_distance(student, teacher, packing, 2, /*one_length=*/true).item<double>();
  EXPECT_NEAR(found / plain_scores(student.cpu(), teacher.cpu(), packing, 2).item<double>(), 1, 1e-12);
}

TEST(ScoreDistance, OfAModelFromItselfIsNothing) {
  const Packing packing = packing_of({4, 9});
  const torch::Tensor both = random({13, 3 * 8}, 3);
  const auto [value, gradient] = with_gradient(score_distance, both, both, packing, 2);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(gradient.abs().max().item<double>(), 0);
}

TEST(ScoreDistance, DoesNotDependOnThreads) {
  const Packing packing = packing_of({40, 7, 64, 3, 90});
  const torch::Tensor student = random({packing.tokens(), 3 * 24}, 1).to(torch::kFloat);
  const torch::Tensor teacher = random({packing.tokens(), 3 * 60}, 2).to(torch::kFloat);
  const int before = at::get_num_threads();
  std::vector<std::pair<double, torch::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    results.push_back(with_gradient(score_distance, student, teacher, packing, 6));
  }
  at::set_num_threads(before);
  for (const auto& [value, gradient] : results) {
    EXPECT_EQ(value, results[0].first);
    EXPECT_TRUE(torch::equal(gradient, results[0].second));
  }
}

TEST(ScoreDistance, TakesATeacherOfAnotherType) {
  const Packing packing = packing_of({5, 70});
  const torch::Tensor student = random({75, 3 * 24}, 1),
                      teacher = random({75, 3 * 60}, 2).to(torch::kBFloat16);
  const auto [expected, slope] = with_gradient(plain_scores, student, teacher.to(torch::kDouble), packing, 6);
  const auto [value, gradient] =
      with_gradient(score_distance, student.to(torch::kFloat), teacher, packing, 6);
  EXPECT_NEAR(value / expected, 1, 0.01);  // the teacher's queries are scaled in its type
  EXPECT_LT((gradient - slope).norm().item<double>() / slope.norm().item<double>(), 0.01);
}

TEST(ScoreDistance, OfNoSequencesIsZero) {
  const Packing packing = Packing::from_lengths({}, {}, {}, {});
  const torch::Tensor none = torch::zeros({0, 3 * 8}, torch::kDouble);
  const auto [value, gradient] = with_gradient(score_distance, none, none, packing, 2);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(gradient.numel(), 0);
}

TEST(Distances, RefuseHeadsThatDoNotDivideAndOtherRows) {
  const Packing packing = packing_of({4});
  const torch::Tensor a = random({4, 3 * 8}, 1), b = random({4, 3 * 10}, 2),
                      short_one = random({3, 3 * 8}, 2);
  EXPECT_THROW(score_distance(a, b, packing, 4), InputError);
  EXPECT_THROW(relation_divergence(b, a, packing, 4), InputError);
  EXPECT_THROW(score_distance(a, short_one, packing, 4), InputError);
  EXPECT_THROW(squared_distance(a, b), InputError);
}

TEST(SquaredDistance, IsTheSumOfSquaresInAnyType) {
  const torch::Tensor a = random({700, 33}, 1), b = random({700, 33}, 2);
  const int before = at::get_num_threads();
  at::set_num_threads(3);  // each has rows of its own
  for (const KernelKind kind : {KernelKind::processor, KernelKind::team})
    for (const auto [type, teachers_type] :
         {std::pair{torch::kDouble, torch::kDouble}, std::pair{torch::kFloat, torch::kFloat},
          std::pair{torch::kBFloat16, torch::kBFloat16}, std::pair{torch::kFloat, torch::kBFloat16}}) {
      const WithKernels kernels(kind);
      const at::Device place = kernels.place();
      const torch::Tensor own = a.to(place, type).clone().requires_grad_(),
                          theirs = b.to(place, teachers_type);
      const torch::Tensor value = squared_distance(own, theirs);
      (value * 0.7).backward();
      const torch::Tensor difference =
          (own.to(at::kCPU, torch::kDouble) - theirs.to(at::kCPU, torch::kDouble)).detach();
      EXPECT_NEAR(value.item<double>() / difference.square().sum().item<double>(), 1,
                  type == torch::kDouble ? 1e-14 : 1e-6);
      const double bound = type == torch::kBFloat16 ? 4e-3 : type == torch::kFloat ? 1e-6 : 1e-14;
      EXPECT_LT(
          ((own.grad().to(at::kCPU, torch::kDouble) - 1.4 * difference).norm() / (1.4 * difference).norm())
              .item<double>(),
          bound);
    }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace funicular::nn::distances_tests
