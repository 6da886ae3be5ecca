// Claims about a process that is killed while it trains, every second time inside a save: no checkpoint is lost.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>

#include "funicular/base/log.h"
#include "funicular/train/checkpoint.h"
#include "resume_runs.h"

namespace funicular::train::resume_tests {
namespace {

TrainerOptions killed_options(const fs::path& output) {
  TrainerOptions options = options_for(output);
  options.save_steps = 1;
  return options;
}

bool saving(const fs::path& output) {
  for (const auto& entry : fs::directory_iterator(output / "checkpoints"))
    if (entry.path().filename().string().starts_with(".tmp-step-")) return true;
  return false;
}

/// Tells the parent, and waits for it to kill this process. Async-signal-safe.
[[noreturn]] void wait_to_be_killed(int = 0) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDOUT_FILENO, "!", 1);
  while (true) ::pause();
}

/// Not a test of its own: what the program does when the next test starts it in order to kill it. Registered
/// only then. It waits for that after step `last`, or, with `bytes`, once a file of its first checkpoint has
/// so many.
class KilledChild : public testing::Test {
  void TestBody() override {
    const TrainerOptions options = killed_options(std::getenv("FUNICULAR_TEST_RUN"));
    const int64_t last = std::atoll(std::getenv("FUNICULAR_TEST_LAST"));
    const int64_t bytes = std::atoll(std::getenv("FUNICULAR_TEST_BYTES"));
    const auto limit_files = [&] {
      if (bytes < 0 || !fs::exists(options.output / "checkpoints") || !saving(options.output)) return;
      std::signal(SIGXFSZ, wait_to_be_killed);
      const rlimit limit{static_cast<rlim_t>(bytes), RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    Trainer trainer(
        options, [&] { return std::make_unique<CallsBeforeItsState>(limit_files); },
        optim::AdamW{.learning_rate = 0.01, .weight_decay = 0.1});
    trainer.callbacks.on_step = [&](int64_t step, const parallel::StepResult&) {
      if (step == last) wait_to_be_killed();
    };
    const TensorDataset unseen = make_data(5, /*seed=*/4);
    trainer.fit(make_net(), make_data(kRows), squared_error, {.data = &unseen});
  }
};
[[maybe_unused]] const bool kKilledChildRegistered = [] {
  if (!std::getenv("FUNICULAR_TEST_RUN")) return false;
  testing::RegisterTest("KilledChild", "Trains", nullptr, nullptr, __FILE__, __LINE__,
                        []() -> testing::Test* { return new KilledChild; });
  return true;
}();

/// A process that trains until it is killed.
class Child {
 public:
  Child(const fs::path& output, int64_t last, int64_t bytes) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    process_ = ::fork();
    if (process_ != 0) {
      ::close(ends[1]);
      told_ = ends[0];
      return;
    }
    ::setenv("FUNICULAR_TEST_RUN", output.c_str(), 1);
    ::setenv("FUNICULAR_TEST_LAST", std::to_string(last).c_str(), 1);
    ::setenv("FUNICULAR_TEST_BYTES", std::to_string(bytes).c_str(), 1);
    ::dup2(ends[1], STDOUT_FILENO);
    ::execl("/proc/self/exe", "test_train", "--gtest_filter=KilledChild.Trains", "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  ~Child() {
    kill();
    ::close(told_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Until it says that it waits; false if it ends instead.
  bool await_the_word() const {
    char c = 0;
    while (::read(told_, &c, 1) == 1)
      if (c == '!') return true;
    return false;
  }
  /// Whether it was there to be killed.
  bool kill() {
    if (process_ <= 0) return false;
    int status = 0;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, 0), &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t process_ = 0;
  int told_ = -1;
};

/// The step of the newest valid checkpoint, 0 if there is none.
int64_t saved_step(const fs::path& output) {
  const fs::path valid = newest_valid_checkpoint(output / "checkpoints");
  return valid.empty() ? 0 : read_state(valid).step;
}

void wait_for_step(const fs::path& output, int64_t step) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < deadline) {
    const auto checkpoints = list_checkpoints(output / "checkpoints");
    if (!checkpoints.empty() && checkpoints.front().first >= step) return;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  ADD_FAILURE() << "step " << step << " was not saved";
}

// Every second kill is aimed at a save: it comes when a file of the checkpoint has a certain number of bytes,
// which is drawn. The others come at a random time after a save, at the latest when the next step is done.
TEST(KilledTraining, LosesNothingIn24KillsOf12InsideASave) {
  log::set_level(log::Level::error);
  const TemporaryFolder folder;
  constexpr int kRounds = 2, kKillsOfARound = 12;
  run(killed_options(folder / "whole"));
  const auto largest =
      static_cast<int64_t>(fs::file_size(folder / "whole/checkpoints/step-000012/optimizer.safetensors"));
  std::mt19937 random(5);
  int kills = 0, aimed = 0, inside_a_save = 0;
  for (int round = 0; round < kRounds; ++round) {
    const fs::path output = folder / ("run" + std::to_string(round));
    int64_t newest = 0;
    for (int number = 0; number < kKillsOfARound; ++number) {
      const bool at_a_save = number % 2 == 0;
      SCOPED_TRACE(testing::Message() << "round " << round << ", kill " << number);
      Child child(output, newest + 2, at_a_save ? static_cast<int64_t>(random()) % largest : -1);
      if (at_a_save) {
        ASSERT_TRUE(child.await_the_word()) << "the child ended before it could be killed in its save";
      } else {
        wait_for_step(output, newest + 1);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
      }
      ASSERT_TRUE(child.kill());
      ++kills;
      aimed += at_a_save;
      inside_a_save += saving(output);
      if (at_a_save) {
        ASSERT_TRUE(saving(output)) << "the kill was to interrupt a save";
      }
      const int64_t step = saved_step(output);
      ASSERT_EQ(step, at_a_save ? newest : newest + 1) << "a kill must not cost a checkpoint";
      newest = step;
    }
    run(killed_options(output));
    expect_equal_runs(folder / "whole", output);
  }
  EXPECT_EQ(kills, kRounds * kKillsOfARound);
  EXPECT_EQ(aimed, kills / 2);
  EXPECT_GE(inside_a_save, aimed);
  RecordProperty("kills", kills);
  RecordProperty("kills_inside_a_save", inside_a_save);
}

}  // namespace
}  // namespace funicular::train::resume_tests
