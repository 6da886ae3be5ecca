// Claims about the limits of containers.
#include "funicular/base/processor_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace funicular {
namespace {

namespace fs = std::filesystem;

class ProcessorLimit : public testing::Test {
 protected:
  ProcessorLimit() { fs::create_directories(folder_); }
  ~ProcessorLimit() override { fs::remove_all(folder_); }
  void write(const fs::path& file, const char* text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }
  std::optional<double> quota() const { return processor_quota(folder_ / "groups", folder_ / "own"); }

  fs::path folder_ = fs::path(testing::TempDir()) / ("processor_limit_test-" + std::to_string(::getpid()));
};

TEST_F(ProcessorLimit, IsTheLeastOfTheGroupsThatTheProcessIsIn) {
  EXPECT_FALSE(quota());
  write("own", "0::/pod/box\n");
  write("groups/cpu.max", "max 100000\n");
  EXPECT_FALSE(quota());
  write("groups/pod/box/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 1.5);
  write("groups/pod/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 0.5);
  write("groups/pod/box/cpu.max", "25000 100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 0.25);
  write("groups/pod/box/cpu.max", "150000 100000\n");
  write("groups/other/cpu.max", "10000 100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 0.5);
}

TEST_F(ProcessorLimit, OfAContainerIsShownAtTheRoot) {
  write("own", "0::/\n");
  write("groups/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 2);
}

TEST_F(ProcessorLimit, OfTheFirstVersionIsReadToo) {
  write("groups/cpu/cpu.cfs_quota_us", "-1\n");
  write("groups/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(quota());
  write("groups/cpu/cpu.cfs_quota_us", "300000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 3);
}

TEST_F(ProcessorLimit, OfTheFirstVersionIsTheProcesssOwn) {
  write("own", "5:memory:/pod\n4:cpu,cpuacct:/pod/box\n1:cpuset:/other\n");
  write("groups/cpu/pod/box/cpu.cfs_quota_us", "150000\n");
  write("groups/cpu/pod/box/cpu.cfs_period_us", "100000\n");
  write("groups/cpu/other/cpu.cfs_quota_us", "10000\n");
  write("groups/cpu/other/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(quota().value(), 1.5);
}

TEST_F(ProcessorLimit, ThatMakesNoSenseIsNone) {
  for (const char* text : {"", "x", "100000", "-5 100000", "0 100000", "5 0", "max"}) {
    write("groups/cpu.max", text);
    EXPECT_FALSE(quota()) << text;
  }
}

TEST_F(ProcessorLimit, BecomesWholeThreads) {
  EXPECT_EQ(threads_within_quota(8, std::nullopt), 8);
  EXPECT_EQ(threads_within_quota(8, 1.5), 2);
  EXPECT_EQ(threads_within_quota(8, 2), 2);
  EXPECT_EQ(threads_within_quota(8, 0.2), 1);
  EXPECT_EQ(threads_within_quota(2, 16), 2);
  EXPECT_EQ(threads_within_quota(8, 4, 2), 2);
  EXPECT_EQ(threads_within_quota(8, 3, 2), 2);
  EXPECT_EQ(threads_within_quota(8, 1, 4), 1);
  EXPECT_EQ(threads_within_quota(8, std::nullopt, 2), 8);
}

}  // namespace
}  // namespace funicular
