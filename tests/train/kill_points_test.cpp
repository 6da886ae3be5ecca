// Claims about what a process that is killed leaves: before each of the calls that change a run's files, one
// after another. And about the order in which those calls flush what they write.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <set>

#include "../comm/ranks.h"
#include "file_calls.h"
#include "funicular/base/file.h"
#include "funicular/base/log.h"
#include "funicular/base/temporary.h"
#include "funicular/core/wrap_module.h"
#include "funicular/format/manifest.h"
#include "funicular/train/checkpoint.h"
#include "funicular/train/saved_model.h"
#include "helpers.h"

namespace funicular::train::kill_points {
namespace {

using namespace funicular::test;

constexpr int64_t kSteps = 4;

TrainerOptions options_for(const fs::path& output) {
  TrainerOptions options;
  options.output = output;
  options.max_steps = kSteps;
  options.batch_size = 4;
  options.save_steps = 2;
  options.save_total_limit = 1;
  options.eval_steps = 2;
  options.logging_steps = 2;
  options.num_workers = 0;
  options.progress = false;
  return options;
}

/// Evaluates on the data of number `evaluation`: where it is another than before, a finished run evaluates
/// again and writes the checkpoint and the model of its last step anew.
FitResult run(const fs::path& output, int evaluation = 1) {
  const TensorDataset unseen = make_data(5, /*seed=*/10 + evaluation);
  Trainer trainer(options_for(output), parallel::make_single, optim::AdamW{.learning_rate = 0.01});
  return trainer.fit(make_net(), make_data(12), squared_error, {.data = &unseen});
}

/// The files of a run that do not depend on the clock, by their paths.
std::map<std::string, std::string> files_of(const fs::path& output) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    const std::string name = entry.path().lexically_relative(output).string();
    if (!entry.is_regular_file() || name.starts_with("events.") || name == "run.json" || name == ".lock")
      continue;
    files[name] = read_file(entry.path());
    if (name != "metrics.jsonl") continue;
    files[name].clear();
    for (Json line : read_lines(entry.path())) {
      for (const char* key : {"tokens_per_second", "step_seconds", "wait_share", "memory_bytes"})
        line.erase(key);
      files[name] += line.dump() + "\n";
    }
  }
  return files;
}

std::set<std::string> names_of(const std::map<std::string, std::string>& files) {
  std::set<std::string> names;
  for (const auto& [name, contents] : files) names.insert(name);
  return names;
}

/// Runs `body` in a process of its own; its exit code, or minus the signal that ended it.
template <class Body>
int in_a_process(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

class KillPoints : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { log::set_level(log::Level::error); }
  static void TearDownTestSuite() { log::set_level(log::Level::info); }
  TemporaryFolder folder;

  /// Kills `again`, a run into `output`, before its first call, its second … until it comes to its end. After
  /// each kill the same run is given once more, and must end as if nothing had happened. `prepare` makes what
  /// `output` holds before.
  template <class Prepare, class Again>
  void expect_no_harm(const Prepare& prepare, const Again& again, bool exchanges, int64_t never_below) {
    ASSERT_EQ(in_a_process([&] {
                prepare(folder / "whole");
                again(folder / "whole");
              }),
              0);
    const auto whole = files_of(folder / "whole");
    ASSERT_EQ(in_a_process([&] { prepare(folder / "before"); }), 0);
    const fs::path output = folder / "run";
    int point = 0, in_the_checkpoint = 0, ended = -SIGKILL;
    while (ended == -SIGKILL) {
      ++point;
      SCOPED_TRACE("killed before call " + std::to_string(point));
      fs::remove_all(output);
      if (fs::exists(folder / "before")) fs::copy(folder / "before", output, fs::copy_options::recursive);
      ended = in_a_process([&] {
        FileCalls calls(output.string());
        if (!exchanges) calls.refuse_exchange();
        calls.kill_at(point);
        again(output);
      });
      for (const auto& entry : fs::exists(output / "checkpoints")
                                   ? fs::directory_iterator(output / "checkpoints")
                                   : fs::directory_iterator())
        in_the_checkpoint += entry.path().filename().string().starts_with(".tmp-");
      ASSERT_EQ(in_a_process([&] {
                  const FitResult result = again(output);
                  if (result.resumed_from < never_below) throw RunError("test", "the run started anew");
                }),
                0);
      const auto files = files_of(output);
      EXPECT_EQ(names_of(files), names_of(whole));
      EXPECT_EQ(files, whole);
      if (HasFailure()) return;
    }
    EXPECT_EQ(ended, 0) << "the last run did not come to its end";
    EXPECT_GT(point, 30);
    EXPECT_GT(in_the_checkpoint, 10);
    RecordProperty("points", point - 1);
    RecordProperty("points_in_a_checkpoint", in_the_checkpoint);
  }
};

/// In a process in which no earlier test has trained: what it starts by fork can train.
#define IN_A_FRESH_PROCESS()                                          \
  if (!comm::test::is_rank()) {                                       \
    EXPECT_EQ(comm::test::Ranks(1).end(), comm::test::Endings(1, 0)); \
    return;                                                           \
  }

TEST_F(KillPoints, OfARunFromItsStartLoseNothing) {
  IN_A_FRESH_PROCESS();
  expect_no_harm([](const fs::path&) {}, [](const fs::path& output) { return run(output); }, true, 0);
}

TEST_F(KillPoints, OfRewritingAStepLoseNothing) {
  IN_A_FRESH_PROCESS();
  expect_no_harm([](const fs::path& output) { run(output, 1); },
                 [](const fs::path& output) { return run(output, 2); }, true, kSteps);
}

TEST_F(KillPoints, OfRewritingAStepLoseNothingWhereNamesCannotBeExchanged) {
  IN_A_FRESH_PROCESS();
  expect_no_harm([](const fs::path& output) { run(output, 1); },
                 [](const fs::path& output) { return run(output, 2); }, false, kSteps);
}

TEST_F(KillPoints, WhatCannotTakeItsPlaceLeavesTheEarlierThere) {
  IN_A_FRESH_PROCESS();
  for (const char* name : {"place", "new"}) {
    std::filesystem::create_directories(folder / name);
    write_file_atomically(folder / name / "file", name);
  }
  FileCalls calls(folder.path().string());
  calls.refuse_exchange();
  calls.refuse_rename_of((folder / "new").string());
  EXPECT_THROW(put_in_place(folder / "new", folder / "place"), RunError);
  EXPECT_EQ(read_file(folder / "place/file"), "place");
}

/// What a power failure may cost: every file must be on the disk before a name tells that it is there.
TEST_F(KillPoints, FilesAndFoldersAreFlushedBeforeAndAfterTheyGetTheirName) {
  IN_A_FRESH_PROCESS();
  const fs::path output = folder / "run";
  std::vector<FileCall> seen;
  {
    FileCalls calls(output.string());
    run(output, 1);
    run(output, 2);
    seen = calls.seen();
  }
  int renames = 0, flushes = 0;
  std::set<std::string>
      unflushed;  // files written since they were flushed, and folders whose entries changed
  for (size_t i = 0; i < seen.size(); ++i) {
    const FileCall& call = seen[i];
    const std::string parent = fs::path(call.path).parent_path().string();
    if (call.name == "write" || call.name == "truncate") unflushed.insert(call.path);
    if (call.name == "mkdir" || call.name == "open") unflushed.insert(parent);
    if (call.name == "fsync") {
      unflushed.erase(call.path);
      ++flushes;
    }
    if (!call.renames() || call.to.find("/.tmp-removed-") != std::string::npos) continue;
    ++renames;
    for (const std::string& path : unflushed)
      EXPECT_FALSE(path == call.path || path.starts_with(call.path + "/"))
          << path << " is not on the disk when " << call.to << " gets its name";
    // The name itself: before the next name is given or a file deleted, its folder is flushed.
    const std::string folder_of_name = fs::path(call.to).parent_path().string();
    bool flushed = false;
    for (size_t next = i + 1; next < seen.size() && !seen[next].renames() && seen[next].name != "unlink";
         ++next)
      flushed |= seen[next].name == "fsync" && seen[next].path == folder_of_name;
    EXPECT_TRUE(flushed) << "the name " << call.to << " is not on the disk when the next change begins";
  }
  EXPECT_GT(renames, 20);
  EXPECT_GT(flushes, 60);
}

TEST_F(KillPoints, FilesOfOthersAreFlushedBeforeTheManifestThatNamesThem) {
  IN_A_FRESH_PROCESS();
  std::ofstream(folder / "state.txt") << "of a callback, which flushes nothing";
  FileCalls calls(folder.path().string());
  format::write_manifest(folder.path(), {});
  bool flushed = false;
  for (const FileCall& call : calls.seen()) {
    flushed |= call.name == "fsync" && call.path == (folder / "state.txt").string();
    EXPECT_TRUE(flushed || !call.renames()) << call.to;
  }
  EXPECT_TRUE(flushed);
}

TEST_F(KillPoints, ACheckpointIsDeletedOnlyWhenANewerOneIsOnTheDisk) {
  IN_A_FRESH_PROCESS();
  const fs::path output = folder / "run";
  FileCalls calls(output.string());
  TrainerOptions options = options_for(output);
  options.max_steps = 6;
  Trainer(options, parallel::make_single, optim::AdamW{.learning_rate = 0.01})
      .fit(make_net(), make_data(12), squared_error);
  int named = 0, flushed = 0, deleted = 0;
  for (const FileCall& call : calls.seen()) {
    if (call.renames() && call.to.find("/checkpoints/step-") != std::string::npos) ++named;
    if (call.name == "fsync" && call.path == (output / "checkpoints").string()) flushed = named;
    if (call.renames() && call.to.find("/.tmp-removed-") != std::string::npos) {
      ++deleted;
      EXPECT_GT(flushed, deleted) << "of checkpoints whose names are on the disk one must be left";
    }
  }
  EXPECT_EQ(named, 3);
  EXPECT_EQ(deleted, 2);
}

TEST_F(KillPoints, OlderCheckpointsStayWhereTheNewestDoesNotVerify) {
  IN_A_FRESH_PROCESS();
  const fs::path output = folder / "run", checkpoints = output / "checkpoints";
  run(output);
  fs::copy(checkpoints / "step-000004", checkpoints / "step-000009", fs::copy_options::recursive);
  std::string bytes = read_file(checkpoints / "step-000009/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(checkpoints / "step-000009/model.safetensors", std::ios::binary) << bytes;
  EXPECT_NE(error_of([&] { prune_checkpoints(checkpoints, 1, 0); }).find("does not verify"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(checkpoints / "step-000004/manifest.json"));
}

/// A model in the hands of a strategy, whose state can be written.
struct Attached {
  Model model = wrap_module(make_net(), squared_error);
  std::unique_ptr<parallel::Strategy> strategy = parallel::make_single();
  Attached() { strategy->attach(model, optim::make_optimizer(optim::AdamW{.learning_rate = 0.01})); }
};

TEST_F(KillPoints, ACheckpointThatIsDamagedOnItsWayLeavesTheEarlierOneOfItsStep) {
  const fs::path checkpoints = folder / "checkpoints";
  const Attached attached;
  parallel::Strategy& strategy = *attached.strategy;
  TrainingState state;
  state.step = 3;
  const fs::path place = write_checkpoint(strategy, state, checkpoints);
  const std::string before = read_file(place / "model.safetensors");
  const auto flip_a_byte = [&] {
    for (const auto& entry : fs::directory_iterator(checkpoints))
      if (entry.path().filename().string().starts_with(".tmp-step-000003")) {
        std::string bytes = read_file(entry.path() / "model.safetensors");
        bytes.back() = static_cast<char>(bytes.back() ^ 1);
        std::ofstream(entry.path() / "model.safetensors", std::ios::binary) << bytes;
      }
  };
  EXPECT_NE(error_of([&] {
              write_checkpoint(strategy, state, checkpoints, flip_a_byte);
            }).find("the earlier one is kept"),
            std::string::npos);
  EXPECT_EQ(read_file(place / "model.safetensors"), before);
  EXPECT_FALSE(format::verify_manifest(place));
}

TEST_F(KillPoints, ACheckpointThatWasToGoDoesNotComeBack) {
  const fs::path checkpoints = folder / "checkpoints";
  const Attached attached;
  parallel::Strategy& strategy = *attached.strategy;
  TrainingState state;
  for (const int64_t step : {1, 2}) {
    state.step = step;
    write_checkpoint(strategy, state, checkpoints);
  }
  // A folder is renamed so before it is deleted; here the process was killed in between.
  const fs::path removed = temporary_name(checkpoints / "removed");
  fs::rename(checkpoints / checkpoint_name(1), removed);
  recover_leftovers(checkpoints);
  EXPECT_EQ(list_checkpoints(checkpoints).size(), 1u);
  EXPECT_FALSE(fs::exists(removed));
}

TEST_F(KillPoints, TemporariesOfAKilledProcessAreNeitherFollowedNorKept) {
  IN_A_FRESH_PROCESS();
  const fs::path output = folder / "run", precious = folder / "precious";
  run(output);
  std::ofstream(precious) << "precious";
  // What a process that was killed may have left, and what somebody may have planted.
  for (const char* name : {"run.json", "metrics.jsonl", "model"})
    fs::create_symlink(precious, output / (".tmp-" + std::string(name) + "-0123456789abcdef"));
  fs::create_symlink(precious, output / "checkpoints/.tmp-step-000004-0123456789abcdef");
  run(output, 2);
  EXPECT_EQ(read_file(precious), "precious");
  for (const auto& entry : fs::recursive_directory_iterator(output))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-")) << entry.path();
}

}  // namespace
}  // namespace funicular::train::kill_points
