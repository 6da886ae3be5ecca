// Claims about the space that a run asks for before its first step.
#include "funicular/train/disk_space.h"

#include <gtest/gtest.h>

#include "funicular/base/error.h"

namespace funicular::train {
namespace {

TEST(DiskSpace, OfACheckpointIsThatOfWeightsAndState) {
  EXPECT_EQ(space_needs(1000, 4, optim::AdamW{}, 2).checkpoint, 12000);
  EXPECT_EQ(space_needs(1000, 4, optim::Lamb{}, 2).checkpoint, 12000);
  EXPECT_EQ(space_needs(1000, 8, optim::AdamW{}, 2).checkpoint, 24000);
  EXPECT_EQ(space_needs(1000, 4, optim::Sgd{.momentum = 0.9}, 2).checkpoint, 8000);
  EXPECT_EQ(space_needs(1000, 4, optim::Sgd{}, 2).checkpoint, 4000);
  EXPECT_EQ(space_needs(1000, 4, optim::Lars{}, 2).checkpoint, 8000);
  EXPECT_EQ(space_needs(1000, 8, optim::AdamW{}, 2).model, 4000);
}

TEST(DiskSpace, ThatDoesNotHoldACheckpointAndTheModelIsRefused) {
  const SpaceNeeds needs = space_needs(1000, 4, optim::AdamW{}, 3);  // 12,000 and 4,000 bytes
  EXPECT_NO_THROW(check_space(needs, 16000, 0, "run"));
  EXPECT_THROW(check_space(needs, 15999, 0, "run"), RunError);
  EXPECT_THROW(check_space(needs, 15999, 1e9, "run"), RunError) << "new files are written before old ones go";
}

TEST(DiskSpace, ThatDoesNotHoldAllThatIsKeptIsWarnedOf) {
  const SpaceNeeds needs = space_needs(1000, 4, optim::AdamW{}, 3);  // 3 * 12,000 + 2 * 4,000 bytes
  const auto said = [&](double available, double held) {
    testing::internal::CaptureStderr();
    check_space(needs, available, held, "run");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(43999, 0).find("may come to"), std::string::npos);
  EXPECT_EQ(said(44000, 0), "");
  EXPECT_EQ(said(30000, 14000), "") << "what the run holds already is part of it";
}

}  // namespace
}  // namespace funicular::train
