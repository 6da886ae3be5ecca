// Claims about proofs: they hold for what is equal, and notice what is not.
#include <gtest/gtest.h>

#include <cstdlib>

#include "../comm/ranks.h"
#include "../train/helpers.h"
#include "funicular/base/log.h"
#include "funicular/plan/proof.h"

namespace funicular::plan {
namespace {

using comm::test::Endings;
using comm::test::is_rank;
using comm::test::Ranks;
using funicular::test::TemporaryFolder;

const ProofTask kTask{.steps = 3, .batch_size = 10};

void run_rank() {
  log::set_level(log::Level::error);
  const Layout layout = Layout::parse(std::getenv("TEST_LAYOUT"));
  run_layout(kTask, layout, comm::Group::from_environment(), std::getenv("TEST_OUTPUT"));
}

class Proofs : public ::testing::Test {
 protected:
  Proof compare(const std::string& a, const std::string& b) {
    const Layout first = Layout::parse(a), second = Layout::parse(b);
    promise = promise_of(first, second, kTask);
    return compare_layouts(ran(first), ran(second), kTask.steps, promise);
  }
  Promise promise;

 private:
  fs::path ran(const Layout& layout) {
    const fs::path output = folder_ / std::to_string(runs_++);
    fs::create_directories(output);
    ::setenv("TEST_LAYOUT", layout.text.c_str(), 1);
    ::setenv("TEST_OUTPUT", output.c_str(), 1);
    EXPECT_EQ(Ranks(layout.ranks).end(), Endings(static_cast<size_t>(layout.ranks), 0)) << layout.text;
    return output;
  }
  TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(Proofs, RanksAccumulationAndRecomputationGiveTheSameGradientsAndWeights) {
  if (is_rank()) return run_rank();
  for (const char* layout :
       {"ddp -n 2", "ddp -n 3 --micro-batch-size 2 --recompute full", "zero1 -n 4 --micro-batch-size 1",
        "zero2 -n 3 --micro-batch-size 2 --recompute sqrt", "zero3 -n 2 --recompute full",
        "zero3 -n 4 --micro-batch-size 1 --recompute sqrt", "zero3 -n 3 --recompute selective", "dp -n 2",
        "dp -n 3 --micro-batch-size 2 --recompute full", "ps-sync -n 3",
        "ps-sync -n 4 --servers 2 --micro-batch-size 2 --recompute full"}) {
    const Proof proof = compare(layout, "single");
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
    EXPECT_LE(promise.bound, 1e-10);
    EXPECT_GT(proof.tensors, 3 * 3 * 40);
    EXPECT_GT(proof.gradient.relative, 0) << "other sums were compared, not the same run";
  }
}

TEST_F(Proofs, EverySeededFaultIsCaught) {
  if (is_rank()) return run_rank();
  for (const char* fault : {"dropped-bucket", "wrong-count", "untied-weight", "repeated-mask"}) {
    const Proof proof = compare(std::string("ddp -n 2 --fault ") + fault, "single");
    EXPECT_FALSE(holds(proof, promise)) << fault;
    EXPECT_NE(proof.first.find("step 1, gradient"), std::string::npos) << fault << ": " << proof.first;
    EXPECT_GT(proof.gradient.relative, 1e-4) << fault;
  }
  for (const char* fault : {"dropped-bucket", "wrong-count", "repeated-mask"})
    for (const char* strategy : {"zero1", "zero3"})
      EXPECT_FALSE(holds(compare(std::string(strategy) + " -n 2 --fault " + fault, "single"), promise))
          << strategy << " " << fault;
}

TEST_F(Proofs, ADeterministicPairIsPromisedTheSameBitsAndHasThem) {
  if (is_rank()) return run_rank();
  const Proof proof = compare("zero2 -n 2 --micro-batch-size 5 --deterministic",
                              "single --micro-batch-size 5 --deterministic");
  EXPECT_TRUE(promise.bit_identical);
  EXPECT_TRUE(holds(proof, promise)) << proof.first;
  const Proof other = compare("ddp -n 2 --micro-batch-size 3", "single --micro-batch-size 5 --deterministic");
  EXPECT_FALSE(promise.bit_identical);
  EXPECT_FALSE(other.bit_identical);
}

TEST(Layouts, WrongWordsAreNamed) {
  for (const auto& [text, word] :
       std::vector<std::pair<std::string, std::string>>{{"dp2", "dp2"},
                                                        {"ddp -n", "-n"},
                                                        {"ddp -n two", "two"},
                                                        {"ddp --ranks 2", "--ranks"},
                                                        {"single -n 2", "single"},
                                                        {"ddp --fault typo", "typo"},
                                                        {"", "empty"}}) {
    const std::string message = funicular::test::error_of([&] { Layout::parse(text); });
    EXPECT_NE(message.find(word), std::string::npos) << text << ": " << message;
  }
}

}  // namespace
}  // namespace funicular::plan
