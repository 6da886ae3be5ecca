// The progress line, on a terminal and elsewhere; interrupts.

#include "funicular/base/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <regex>
#include <thread>

#include "funicular/base/interrupt.h"
#include "funicular/base/log.h"

namespace funicular {
namespace {

/// A stream in memory.
class Stream {
 public:
  Stream() : file_(::open_memstream(&data_, &size_)) {}
  ~Stream() {
    std::fclose(file_);
    std::free(data_);
  }
  std::FILE* file() const { return file_; }
  std::string text() const {
    std::fflush(file_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

TEST(Progress, WithoutATerminalThereAreWholeLinesOnly) {
  const Stream stream;
  {
    Progress progress("tokenize", 200,
                      {.unit = "rows", .plain_seconds = 0, .stream = stream.file(), .terminal = false});
    progress.update(50, "extra");
    progress.update(200);
    progress.finish();
  }
  const std::string text = stream.text();
  EXPECT_EQ(text.find('\r'), text.npos);
  EXPECT_EQ(text.find('\x1b'), text.npos);
  EXPECT_TRUE(text.starts_with("tokenize  25%  50 of 200 rows  ")) << text;
  EXPECT_NE(text.find("  extra\n"), text.npos) << text;
  EXPECT_NE(text.find("tokenize  200 rows in 0:00\n"), text.npos) << text;
}

TEST(Progress, ARateBelowOneHasItsDigits) {
  const Stream stream;
  Progress progress("train", 10,
                    {.unit = "steps", .plain_seconds = 0, .stream = stream.file(), .terminal = false});
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  progress.update(1);
  EXPECT_TRUE(std::regex_search(stream.text(), std::regex("  1 of 10 steps  0\\.[1-9][0-9]* steps/s  ")))
      << stream.text();
}

TEST(Progress, TheRateAndTheTimeLeftAreOfWhatIsDoneSinceTheStart) {
  const Stream stream;
  Progress progress(
      "train", 2000,
      {.unit = "steps", .plain_seconds = 0, .stream = stream.file(), .terminal = false, .start = 1000});
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  progress.update(1001);  // one step, in a tenth of a second or more
  EXPECT_TRUE(
      std::regex_search(stream.text(), std::regex("  1\\.00k of 2\\.00k steps  [0-9]\\.[0-9]+ steps/s  ")))
      << stream.text();
}

TEST(Progress, WhatIsSpentBesideIsNoneOfTheRatesAndPartOfTheTimeLeft) {
  const Stream stream;
  Progress progress("train", 3,
                    {.unit = "steps", .plain_seconds = 0, .stream = stream.file(), .terminal = false});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  progress.spent_beside(0.4);
  progress.update(1, "", 3600);  // a step in a tenth of a second, and an hour of evaluations to come
  std::smatch found;
  const std::string text = stream.text();
  ASSERT_TRUE(std::regex_search(text, found, std::regex("  ([0-9.]+) steps/s  (1:00:[0-9][0-9]) left")))
      << text;
  EXPECT_GT(std::stod(found[1]), 2.5);  // 2 with the evaluation
}

TEST(Progress, WhereNothingWasCountedItEndsWithTheTimeAlone) {
  const Stream stream;
  Progress progress("bench", 0,
                    {.unit = "", .plain_seconds = 3600, .stream = stream.file(), .terminal = false});
  progress.show("1 of 2: adamw");
  progress.finish();
  EXPECT_EQ(stream.text(), "bench  done in 0:00\n");
}

TEST(Progress, WithoutATerminalLinesAreSeldom) {
  const Stream stream;
  Progress progress("tokenize", 0,
                    {.unit = "", .plain_seconds = 3600, .stream = stream.file(), .terminal = false});
  for (uint64_t i = 0; i < 1000; ++i) progress.update(i);
  EXPECT_EQ(stream.text(), "");
}

TEST(Progress, OnATerminalOneLineIsRedrawnAndClearedBeforeMessages) {
  const Stream stream;
  {
    Progress progress("train", 10,
                      {.unit = "", .plain_seconds = 0, .stream = stream.file(), .terminal = true});
    progress.update(1);
    EXPECT_EQ(stream.text(), "");  // not more than ten times a second
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    progress.show("step 1");
    EXPECT_EQ(stream.text(), "\rtrain  step 1\x1b[K");
    log::warning("a message of the progress test");
    EXPECT_EQ(stream.text(), "\rtrain  step 1\x1b[K\r\x1b[K");
  }
  EXPECT_EQ(stream.text(), "\rtrain  step 1\x1b[K\r\x1b[K");  // cleared once
}

TEST(Progress, ALineNeverWraps) {
  const Stream stream;
  Progress progress("train", 0, {.unit = "", .plain_seconds = 0, .stream = stream.file(), .terminal = true});
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  std::string wide;
  for (int i = 0; i < 200; ++i) wide += "\u00e9";
  progress.show(wide);
  EXPECT_EQ(stream.text(), "\r" + ("train  " + wide).substr(0, 7 + 2 * 72) + "\x1b[K");  // 79 characters
}

TEST(Progress, NumbersAndDurationsAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(999), "999");
  EXPECT_EQ(short_number(999.6), "1.00k");
  EXPECT_EQ(short_number(1'234'567), "1.23M");
  EXPECT_EQ(short_number(12'345), "12.3k");
  EXPECT_EQ(short_number(123'456), "123k");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_duration(4.4), "0:04");
  EXPECT_EQ(short_duration(727), "12:07");
  EXPECT_EQ(short_duration(3 * 3600 + 25 * 60), "3:25:00");
  EXPECT_EQ(short_duration(-1), "?");
}

TEST(Interrupt, ASignalIsARequestWhileAGuardLives) {
  clear_interrupt();
  {
    const InterruptGuard guard;
    EXPECT_EQ(interrupt_requested(), 0);
    ::raise(SIGTERM);
    EXPECT_EQ(interrupt_requested(), SIGTERM);
  }
  for (const int signal : kStopSignals) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL) << signal << ": as before";
  }
  clear_interrupt();
}

TEST(Interrupt, ASignalThatIsIgnoredStaysIgnored) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    ::signal(signal, SIG_IGN);
    {
      const InterruptGuard guard;
      ::raise(signal);
      EXPECT_EQ(interrupt_requested(), 0) << signal;
    }
    ::signal(signal, SIG_DFL);
  }
}

TEST(InterruptDeathTest, ASecondInterruptEndsTheProcessWith130) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        ::raise(SIGINT);
        ::raise(SIGINT);
        ::_exit(0);
      },
      testing::ExitedWithCode(130), "stopped at once");
}

TEST(InterruptDeathTest, ASecondSigtermOnlyAsksAgain) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) ::raise(signal);
        ::raise(SIGTERM);
        ::_exit(interrupt_requested() == SIGTERM ? 7 : 8);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace funicular
