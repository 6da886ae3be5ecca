// Claims about losses that compare all rows of a batch: no cut of the batch changes a step.
#include <gtest/gtest.h>

#include <cstdlib>

#include "funicular/base/error.h"
#include "proofs.h"

namespace funicular::prove {
namespace {

using test::is_rank;
using test::run_rank;

class RelatedTexts : public test::Proofs, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (!is_rank()) ::setenv("TEST_OBJECTIVE", GetParam(), 1);
  }
  void TearDown() override {
    if (!is_rank()) ::unsetenv("TEST_OBJECTIVE");
  }
  void expect_equal(const char* layout, const char* other) {
    const Proof proof = compare(layout, other);
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
    EXPECT_LE(promise.bound, 1e-10);
    EXPECT_GT(proof.gradient.relative, 0) << layout << ": other sums were compared, not the same run";
    EXPECT_GT(proof.tensors, 3 * 3 * 40);
  }
};

TEST_P(RelatedTexts, AreComparedOverTheGlobalBatchOnOneToFourRanks) {
  if (is_rank()) return run_rank();
  for (const char* layout :
       {"single --micro-batch-size 1", "single --micro-batch-size 3 --recompute full", "ddp -n 2",
        "ddp -n 3 --micro-batch-size 2 --recompute sqrt", "ddp -n 4 --micro-batch-size 1", "zero1 -n 3",
        "zero2 -n 2 --micro-batch-size 3", "zero3 -n 4 --micro-batch-size 2 --recompute full",
        "dp -n 3 --micro-batch-size 2", "ps-sync -n 3 --micro-batch-size 3"})
    expect_equal(layout, "single");
}

TEST_P(RelatedTexts, AreComparedOverTheGlobalBatchInPipelinesAndSlices) {
  if (is_rank()) return run_rank();
  for (const char* layout :
       {"pipeline -n 2 --micro-batch-size 3", "pipeline -n 3 --schedule zb-h1 --micro-batch-size 2",
        "pipeline -n 2 --schedule zb-v --micro-batch-size 2 --recompute full",
        "pipeline -n 3 --stages 0,2x2 --micro-batch-size 2", "pipeline --devices 2 --micro-batch-size 3",
        "pipeline-zero3 -n 4 --pipeline-parallel 2 --micro-batch-size 2", "tensor -n 2 --micro-batch-size 3",
        "tensor -n 2 --sequence-parallel", "zero2 -n 4 --tensor-parallel 2 --micro-batch-size 3",
        "pipeline -n 4 --tensor-parallel 2 --micro-batch-size 2"})
    expect_equal(layout, "single");
}

TEST_P(RelatedTexts, FollowTheStepThatIsWrittenTwice) {
  if (is_rank()) return run_rank();
  for (const char* layout : {"ddp -n 2 --micro-batch-size 3", "zero3 -n 2 --recompute full"})
    expect_equal(layout, "reference");
}

TEST_P(RelatedTexts, HaveTheSameBitsUnderDeterministicLayouts) {
  if (is_rank()) return run_rank();
  for (const char* layout :
       {"ddp -n 2 --micro-batch-size 3 --deterministic", "zero3 -n 4 --micro-batch-size 3 --deterministic"}) {
    const Proof proof = compare(layout, "single --micro-batch-size 3 --deterministic");
    EXPECT_TRUE(promise.bit_identical) << layout;
    EXPECT_TRUE(holds(proof, promise)) << layout << ": " << proof.first;
  }
}

TEST_P(RelatedTexts, WithASeededFaultTrainOtherwise) {
  if (is_rank()) return run_rank();
  for (const char* layout :
       {"ddp -n 2 --fault wrong-count", "ddp -n 2 --micro-batch-size 2 --fault dropped-micro-batch"})
    EXPECT_FALSE(holds(compare(layout, "single"), promise)) << layout;
}

/// Its batches would be compared with weights of different steps.
TEST_P(RelatedTexts, AreRefusedWhereStepsOverlap) {
  if (is_rank()) return run_rank();
  const Layout layout = Layout::parse("pipeline -n 2 --schedule pipedream");
  const std::string message = funicular::test::error_of(
      [&] { run_layout(test::task_of(GetParam()), layout, comm::Group::imagined(0, 2), folder("refused")); });
  EXPECT_NE(message.find("overlaps steps"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Each, RelatedTexts, ::testing::Values(kRelatedTexts, kScoredTexts),
                         [](const auto& info) {
                           std::string name = info.param;
                           name.erase(name.find('-'), 1);
                           return name;
                         });

}  // namespace
}  // namespace funicular::prove
