// What the machine says of its time and memory.

#include <gtest/gtest.h>
#include <unistd.h>

#include "funicular/base/clock.h"
#include "funicular/base/memory.h"

namespace funicular {
namespace {

TEST(Clock, ADurationIsNeverNegative) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_EQ(seconds_between(now, now - std::chrono::hours(1)), 0);
  EXPECT_EQ(seconds_since(now + std::chrono::hours(1)), 0);
  EXPECT_EQ(seconds_between(now, now + std::chrono::milliseconds(1500)), 1.5);
  EXPECT_GE(seconds_since(now - std::chrono::seconds(2)), 2);
}

TEST(Memory, WhatIsAvailableIsPartOfWhatTheMachineHas) {
  const double all =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  EXPECT_GT(available_memory(), 1 << 20);
  EXPECT_LE(available_memory(), all);
}

}  // namespace
}  // namespace funicular
