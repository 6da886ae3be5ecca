#include "funicular/base/nvidia_driver.h"

#include <gtest/gtest.h>

#include "funicular/base/temporary_folder.h"

namespace funicular {
namespace {

TEST(NvidiaDriver, IsReadWithItsCards) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_nvidia_driver(folder.path()).has_value());
  write_file_atomically(folder.path() / "version",
                        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
                        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
  EXPECT_TRUE(read_nvidia_driver(folder.path())->cards.empty());
  for (const auto& [bus, text] : {std::pair("0000:81:00.0", "Model: \t\t NVIDIA L4\nIRQ:   1\n"),
                                  std::pair("0000:01:00.0", "Model: \t\t NVIDIA H200\nIRQ:   2\n")}) {
    make_directories(folder.path() / "gpus" / bus);
    write_file_atomically(folder.path() / "gpus" / bus / "information", text);
  }
  const NvidiaDriver driver = read_nvidia_driver(folder.path()).value();
  EXPECT_EQ(driver.version, "580.159.04");
  EXPECT_EQ(driver.cards, (std::vector<std::string>{"NVIDIA H200", "NVIDIA L4"}));
}

}  // namespace
}  // namespace funicular
