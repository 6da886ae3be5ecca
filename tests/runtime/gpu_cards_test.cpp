// What can be told of GPUs without one.

#include "funicular/runtime/gpu_cards.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "funicular/base/error.h"
#include "funicular/base/temporary_folder.h"

namespace funicular::device {
namespace {

TEST(GpuCards, RunMachineCodeOfTheirGenerationElsePortableCode) {
  using enum CardKernels;
  const std::vector<int> built{80, 90};
  EXPECT_EQ(kernels_for(75, built), none) << "T4";
  for (const int capability : {80, 86, 89, 90})
    EXPECT_EQ(kernels_for(capability, built), machine_code) << capability;
  for (const int capability : {100, 120}) EXPECT_EQ(kernels_for(capability, built), portable) << capability;
  EXPECT_EQ(kernels_for(80, {75, 86}), none) << "machine code of a newer card";
  EXPECT_EQ(kernels_for(90, {}), none);
}

TEST(GpuCards, EachRankOfAHostHasItsOwn) {
  EXPECT_EQ(card_of_rank(0, 1, 1), 0);
  EXPECT_EQ(card_of_rank(2, 3, 4), 2);
  EXPECT_THROW(card_of_rank(0, 2, 1), InputError);
  EXPECT_EQ(card_of_rank(4, 5, 3, /*shared=*/true), 1);
}

TEST(GpuCards, ProcessorsBesideACardAreThoseOfTheSystemsList) {
  const TemporaryFolder system;
  const Card card{.bus = "0000:1b:00.0"};
  EXPECT_TRUE(processors_near(card, system.path()).empty());
  const std::filesystem::path place = system.path() / "bus/pci/devices/0000:1b:00.0";
  std::filesystem::create_directories(place);
  std::ofstream(place / "local_cpulist") << "0-2,5,8-9\n";
  EXPECT_EQ(processors_near(card, system.path()), (std::vector{0, 1, 2, 5, 8, 9}));
  EXPECT_TRUE(processors_near({}, system.path()).empty());
}

TEST(GpuCards, AThreadStaysOnItsOwnProcessorsAmongThose) {
  std::thread([] {
    const int all = stay_on({CPU_SETSIZE - 1});  // which nobody has: nothing changes
    EXPECT_GE(all, 1);
    const int own = ::sched_getcpu();
    EXPECT_EQ(stay_on({own, CPU_SETSIZE - 1}), 1);
    EXPECT_EQ(::sched_getcpu(), own);
  }).join();
}

TEST(GpuCards, ATeamThatWantsMoreMemoryThanThereIsIsRefusedByBothNumbers) {
  const at::Tensor here = at::empty({1});
  check_shared_bytes(here, 100'000);
  const LimitSharedBytes of_a_t4(65'536);
  EXPECT_EQ(most_shared_bytes(here), 65'536);
  try {
    check_shared_bytes(here, 100'000);
    FAIL() << "not refused";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("needs 100000 bytes of shared memory, and 65536 are allowed"),
              std::string::npos)
        << error.what();
  }
}

TEST(GpuCards, ADriverOfAnOlderMajorVersionIsToldByBothVersions) {
  for (const int driver : {0, 13'000, 13'010, 14'000})
    EXPECT_EQ(driver_shortfall(driver, 13'000), "") << driver;
  EXPECT_TRUE(driver_shortfall(12'080, 13'000)
                  .starts_with("the NVIDIA driver is for CUDA 12.8, and this build needs CUDA 13;"));
}

}  // namespace
}  // namespace funicular::device
