// Claims about the line that a terminal shows while a model trains.
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <thread>
#include <utility>

#include "funicular/base/clock.h"
#include "plain_training.h"

namespace funicular::train {
namespace {

using namespace funicular::test;

struct SlowMetric final : Metrics {
  double least = 1e9;  ///< seconds that an evaluation has taken at least
  void start() override {}
  void add(const TensorMap&) override {}
  std::map<std::string, double> finish(double) override {
    const auto begin = std::chrono::steady_clock::now();
    ::usleep(1'000'000);
    least = std::min(least, seconds_since(begin));
    return {};
  }
};

/// When a step's callback began and ended, in seconds since this object was made.
class StepTimes {
 public:
  /// Takes a while, so that each step is drawn.
  void note(int64_t step) {
    const double entered = seconds_since(begin_);
    ::usleep(120'000);
    times_[step] = {entered, seconds_since(begin_)};
  }
  double entered(int64_t step) const { return times_.at(step).first; }
  double left(int64_t step) const { return times_.at(step).second; }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::map<int64_t, std::pair<double, double>> times_;
};

/// What `work` writes to standard error where that is a terminal; none where a machine, such as a bare chroot, can make no
/// terminal.
std::optional<std::string> on_a_terminal(const std::function<void()>& work) {
  int here = -1, terminal = -1;
  if (::openpty(&here, &terminal, nullptr, nullptr, nullptr) != 0) return std::nullopt;
  const int before = ::dup(STDERR_FILENO);
  ::dup2(terminal, STDERR_FILENO);
  ::close(terminal);
  std::string shown;
  std::thread reader([&] {
    char part[4096];
    for (ssize_t got = 0; (got = ::read(here, part, sizeof part)) > 0;)
      shown.append(part, static_cast<size_t>(got));
  });
  work();
  ::dup2(before, STDERR_FILENO);  // the last one that has the terminal open: the reader ends
  reader.join();
  ::close(before);
  ::close(here);
  return shown;
}

TEST(Trainer, ShowsTheSpeedOfItsStepsWithoutEvaluationsAndTheTimeThatTheseWillTake) {
  TrainerOptions options = quiet();
  options.progress = true;
  options.max_steps = 12;
  options.eval_steps = 4;
  SlowMetric metric;
  const TensorDataset data = make_data(22);
  Trainer trainer(options, parallel::make_single, optim::Sgd{});
  StepTimes times;
  trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) { times.note(step); };
  const std::optional<std::string> on_terminal = on_a_terminal([&] {
    trainer.fit(make_plain(), data, plain_loss, {&data, &metric});
  });
  if (!on_terminal) GTEST_SKIP() << "no terminal can be made here (/dev/pts)";
  const std::string& shown = *on_terminal;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(shown, found,
                                std::regex("  5 of 12 steps  ([0-9.]+) steps/s  ([0-9]+):([0-9]+) left")))
      << shown;
  // Step 5 is drawn between its callback and the next one's, and the clock starts before the first one's: however slow
  // the machine is, the steps took no longer than this, and no less.
  const double speed = std::stod(found[1]), rounding = 0.006;
  const double most = times.entered(6) - metric.least,
               least = times.left(5) - times.entered(1) - (times.entered(5) - times.left(4));
  EXPECT_GE(speed, 5 / most - rounding);
  EXPECT_LE(speed, 5 / least + rounding);
  const double left = 60 * std::stod(found[2]) + std::stod(found[3]);  // to the nearest second
  EXPECT_GE(left, 7 / (speed + rounding) + 2 * metric.least - 0.51) << "the time of two evaluations is in it";
}

}  // namespace
}  // namespace funicular::train
