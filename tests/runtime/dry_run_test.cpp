// Claims about steps without arithmetic: shapes and lifetimes are real, numbers and pages are not.
#include "funicular/runtime/dry_run.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <vector>

#include "funicular/runtime/allocator.h"
#include "funicular/runtime/work_items.h"

namespace funicular {
namespace {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(DryRun, GivesResultsOfTheShapeAndTypeThatOperatorsHave) {
  const DryRun dry;
  const at::Tensor a = at::empty({300, 200}), b = at::empty({200, 100});
  EXPECT_EQ(at::mm(a, b).sizes(), (std::vector<int64_t>{300, 100}));
  EXPECT_EQ(a.to(at::kBFloat16).scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::zeros({1000, 50}, at::kDouble).scalar_type(), at::kDouble);
  EXPECT_EQ(a.sum(1).sizes(), std::vector<int64_t>{300});
  EXPECT_TRUE(a.add_(1).is_same(a));
  EXPECT_EQ(a.t().data_ptr(), a.data_ptr()) << "a view stays one";
  const auto parts = at::cat({a, a}).split(300);
  EXPECT_EQ(parts[1].sizes(), a.sizes());
}

TEST(DryRun, LeavesTheNumbersOfTensorsThatItWritesTo) {
  const at::Tensor weight = at::ones({300, 200}), update = at::ones({300, 200});
  {
    const DryRun dry;
    EXPECT_TRUE(weight.add_(update, 2).is_same(weight));
    weight.mul_(3);
    at::Tensor sum = weight;
    at::add_out(sum, weight, update);
  }
  EXPECT_TRUE(weight.equal(update)) << "no arithmetic was done";
  weight.add_(update);
  EXPECT_EQ(weight[0][0].item<double>(), 2) << "and it is again";
}

TEST(DryRun, TouchesNoPageOfALargeTensor) {
  if (!use_caching_allocator()) GTEST_SKIP() << "tensors are not counted here";
  const int64_t before = resident_bytes();
  const int64_t used = allocator_statistics().used;
  const DryRun dry;
  const at::Tensor large = at::zeros({1 << 15, 1 << 13});  // a gigabyte
  const at::Tensor product = large.mm(large.t().narrow(1, 0, 1 << 13));
  EXPECT_EQ(allocator_statistics().used - used, int64_t{2} << 30);
  EXPECT_LT(resident_bytes() - before, int64_t{64} << 20);
}

TEST(DryRun, SavesForTheBackwardPassWhatARealStepSaves) {
  const auto bytes = [](bool dry) {
    std::optional<DryRun> without;
    if (dry) without.emplace();
    const at::Tensor weight = at::ones({400, 400}).requires_grad_(), rows = at::ones({300, 400});
    const int64_t before = allocator_statistics().used;
    const at::Tensor loss = rows.mm(weight).tanh().exp().sum();
    const int64_t kept = allocator_statistics().used - before;
    loss.backward();
    EXPECT_EQ(weight.grad().sizes(), weight.sizes());
    return kept;
  };
  if (!use_caching_allocator()) GTEST_SKIP() << "tensors are not counted here";
  EXPECT_GT(bytes(false), 0);
  EXPECT_EQ(bytes(true), bytes(false));
}

TEST(DryRun, CarriesOutWhatDecidesOverSizesAndIsOverWhenItsObjectIsGone) {
  {
    const DryRun dry;
    EXPECT_TRUE(DryRun::is_on());
    const at::Tensor ids = at::tensor({3, 1, 2}, at::kLong);
    EXPECT_EQ(ids.cumsum(0)[2].item<int64_t>(), 6);
    EXPECT_EQ(ids.eq(1).nonzero().size(0), 1);
    EXPECT_EQ(at::empty({1 << 20}).sum().item<double>(), 1);
    int calls = 0;
    for_each_item(5, [&](int64_t) { ++calls; });
    for_each_range(0, 5, 1, [&](int64_t, int64_t) { ++calls; });
    EXPECT_EQ(calls, 0);
    { const DryRun nested; }
    EXPECT_TRUE(DryRun::is_on());
  }
  EXPECT_FALSE(DryRun::is_on());
  EXPECT_EQ(at::ones({1 << 16}).sum().item<double>(), 1 << 16);
}

}  // namespace
}  // namespace funicular
